"""Memory and processor use of each rank while it trains, sampled by a thread of its own."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

PATTERN = "system.*.jsonl"


@contextmanager
def sampled(folder: Path, *, rank: int, every_seconds: float) -> Iterator[None]:
    """Append a line to `<folder>/system.<rank>.jsonl` every so often; never raises.

    A sample costs well under a millisecond. Memory in MiB; processor in percent of one core.
    """
    stop = threading.Event()
    path = folder / f"system.{rank}.jsonl"
    thread = threading.Thread(
        target=_sample, args=(path, rank, every_seconds, stop), name="system-metrics", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=5)


def reading(process: psutil.Process) -> dict[str, float]:
    """Use by one process and its share of the host."""
    with process.oneshot():
        found = {
            "memory_mib": process.memory_info().rss / 2**20,
            "cpu_percent": process.cpu_percent(),
            "threads": float(process.num_threads()),
        }
    found["host_memory_percent"] = psutil.virtual_memory().percent
    return found | _accelerator()


def _accelerator() -> dict[str, float]:
    torch = sys.modules.get("torch")  # a sampler never imports it
    if torch is None or not torch.cuda.is_initialized():
        return {}
    return {
        "gpu_memory_mib": torch.cuda.memory_allocated() / 2**20,
        "gpu_memory_peak_mib": torch.cuda.max_memory_allocated() / 2**20,
    }


def _sample(path: Path, rank: int, every_seconds: float, stop: threading.Event) -> None:
    process = psutil.Process()
    process.cpu_percent()  # the first call only starts the count
    while not stop.wait(every_seconds):
        row = {"time": round(time.time(), 3), "rank": rank} | reading(process)
        try:
            with path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(row) + "\n")
        except OSError:  # a full disk stops the samples, not the training
            return
