"""Memory of each rank, its host and its GPU while it trains, sampled by a thread of its own.

Names, units and meaning are those of MLflow's own system metrics, where MLflow has the same
(`mlflow.system_metrics`); its sampler is not used, as no rank imports MLflow or talks to its store.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

PATTERN = "system.*.jsonl"
MEMORY = "memory_mib"
"""Of the rank's process: MLflow has no such metric."""
AS_MLFLOW = (
    "cpu_utilization_percentage",
    "system_memory_usage_percentage",
    "gpu_0_utilization_percentage",
    "gpu_0_memory_usage_megabytes",
)


@contextmanager
def sampled(folder: Path, *, rank: int, every_seconds: float) -> Iterator[None]:
    """Append a line to `<folder>/system.<rank>.jsonl` every so often; never raises.

    A sample costs well under a millisecond.
    """
    stop = threading.Event()
    path = folder / f"system.{rank}.jsonl"
    thread = threading.Thread(
        target=_sample,
        args=(path, rank, _current_gpu(), every_seconds, stop),
        name="system-metrics",
        daemon=True,
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=5)


def reading(process: psutil.Process, gpu: int | None) -> dict[str, float]:
    """Memory of one process; its host and its GPU (an index of torch's) as MLflow measures them."""
    memory = psutil.virtual_memory()
    found = {
        MEMORY: process.memory_info().rss / 2**20,
        "cpu_utilization_percentage": psutil.cpu_percent(),
        "system_memory_usage_percentage": 100 * memory.used / memory.total,
    }
    return found | (_gpu(gpu) if gpu is not None else {})


def _gpu(index: int) -> dict[str, float]:
    """`gpu_0` is the learner's own, whichever of its host's that is."""
    cuda = sys.modules["torch"].cuda
    found = {}
    with suppress(Exception):  # what the driver refuses, as the use of a part of a GPU, is left out
        free, total = cuda.mem_get_info(index)
        found["gpu_0_memory_usage_megabytes"] = (total - free) / 1e6
        found["gpu_0_utilization_percentage"] = float(cuda.utilization(index))
    return found


def _current_gpu() -> int | None:
    """Of this thread: a new one's would be the first."""
    torch = sys.modules.get("torch")  # a sampler never imports it
    if torch is None or not torch.cuda.is_initialized():
        return None
    return torch.cuda.current_device()


def _sample(
    path: Path, rank: int, gpu: int | None, every_seconds: float, stop: threading.Event
) -> None:
    process = psutil.Process()
    psutil.cpu_percent()  # the first call only starts the count
    while not stop.wait(every_seconds):
        row = {"time": round(time.time(), 3), "rank": rank} | reading(process, gpu)
        try:
            with path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(row) + "\n")
        except OSError:  # a full disk stops the samples, not the training
            return
