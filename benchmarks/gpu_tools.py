"""Timing, profiling and bookkeeping of the GPU benchmarks."""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import statistics
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

PAPER = SimpleNamespace(layers=6, cells=512, projection=256, dropout=0.0, frames_per_step=1)
INPUT, PDFS, FRAMES = 260, 32_000, 21


@contextlib.contextmanager
def precision(name: str) -> Iterator[None]:
    """Types of matrix products: fp32, tf32, bf16 (autocast) or pure (no autocast)."""
    torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
    torch.backends.cudnn.allow_tf32 = name == "tf32"
    with torch.autocast("cuda", torch.bfloat16, enabled=name == "bf16", cache_enabled=False):
        yield


class Bench:
    """Runs sections under a wall-clock budget and keeps their rows."""

    def __init__(self, budget: float, out: Path | None, only: set[str] | None) -> None:
        self.start = time.monotonic()
        self.budget = budget
        self.out = out
        self.only = only
        self.rows: list[dict[str, Any]] = []

    def left(self) -> float:
        """Seconds of the budget that remain."""
        return self.budget - (time.monotonic() - self.start)

    def add(self, section: str, name: str, **values: Any) -> None:
        """Keep a row and print it at once."""
        row = {"section": section, "name": name, **values}
        self.rows.append(row)
        print(f"[{self.budget - self.left():5.0f} s] {describe(row)}", flush=True)
        self.save()

    def save(self) -> None:
        """Write all rows so far."""
        if self.out:
            (self.out / "results.json").write_text(json.dumps(self.rows, indent=1))

    def section(self, name: str, body: Callable[[Bench], None], needs: float = 10) -> None:
        """Run a section; a failure is a row, not the end."""
        if self.only and name not in self.only:
            return
        if self.left() < needs:
            self.add(name, "skipped", reason=f"{self.left():.0f} s left")
            return
        self.attempt(name, name, lambda: body(self))
        clean()

    def attempt(self, section: str, name: str, body: Callable[[], None]) -> None:
        """Run a part of a section; keep its error as a row."""
        if self.left() < 3:
            self.add(section, name, skipped="no time left")
            return
        try:
            body()
        except torch.cuda.OutOfMemoryError as error:
            self.add(section, name, error="out of memory: " + str(error).split(".")[0][-90:])
        except Exception as error:
            text = traceback.format_exc()
            if self.out:
                with (self.out / "errors.txt").open("a") as stream:
                    stream.write(f"=== {section} {name}\n{text}\n")
            first = next(iter(str(error).splitlines()), "")
            self.add(section, name, error=f"{type(error).__name__}: {first[:160]}")


def describe(row: dict[str, Any]) -> str:
    """A row as one short line."""
    shown = []
    for key, value in row.items():
        if key in ("section", "name"):
            continue
        if isinstance(value, float):
            value = f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
        shown.append(f"{key}={value}")
    return f"{row['section']:<9} {row['name']:<34} {'  '.join(shown)}"


def clean() -> None:
    """Give all memory back between variants."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def median_ms(work: Callable[[], Any], seconds: float = 0.8, warm: int = 3) -> tuple[float, float]:
    """Median time of one call in milliseconds, and half the spread of two halves, relative."""
    for _ in range(warm):
        work()
    torch.cuda.synchronize()
    before = time.monotonic()
    work()
    torch.cuda.synchronize()
    each = max(time.monotonic() - before, 1e-5)
    repeats = max(6, min(200, int(seconds / each)))
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    marks[0].record()
    for mark in marks[1:]:
        work()
        mark.record()
    torch.cuda.synchronize()
    times = [a.elapsed_time(b) for a, b in itertools.pairwise(marks)]
    half = repeats // 2
    first, second = statistics.median(times[:half]), statistics.median(times[half:])
    middle = statistics.median(times)
    return middle, abs(first - second) / middle / 2


def graphed(work: Callable[[], Any]) -> Callable[[], Any]:
    """The work captured into a CUDA graph; a replay returns the captured result."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = work()
    kept = [work]  # its tensors are the graph's

    def replay() -> Any:
        graph.replay()
        return result if kept else None

    return replay


def profile_table(work: Callable[[], Any], calls: int = 2) -> list[tuple[str, float, int]]:
    """(kernel, milliseconds a call, launches a call), longest first."""
    from torch.profiler import ProfilerActivity, profile

    work()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiler:
        for _ in range(calls):
            work()
        torch.cuda.synchronize()
    rows = [
        (event.key, event.self_device_time_total / 1000 / calls, event.count // calls)
        for event in profiler.key_averages()
        if event.device_type == torch.autograd.DeviceType.CUDA and event.self_device_time_total
    ]
    return sorted(rows, key=lambda row: -row[1])


def relative(got: torch.Tensor, want: torch.Tensor) -> float:
    """||got - want|| / ||want|| in float64 on the CPU; NaN stays NaN."""
    difference = got.detach().double().cpu() - want.detach().double().cpu()
    return float(difference.norm() / want.detach().double().cpu().norm().clamp(min=1e-30))
