"""Stages as the workflow calls them, and functions, timed."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

Items = TypeVar("Items")


def hadpsgd(*arguments: object) -> tuple[float, float]:
    """Run a stage; wall and processor seconds. Ends the program where the stage fails."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    words = [str(argument) for argument in arguments]
    done = subprocess.run(
        [sys.executable, "-m", "hadpsgd", *words],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"hadpsgd {' '.join(words)}\n{done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - began, used


def side_by_side(
    repeat: int, runs: Mapping[str, Callable[[Items], object]], parts: Sequence[Items]
) -> dict[str, float]:
    """Processor seconds of each run over all parts, medians of `repeat` times of every part.

    All runs take a part before the next one comes: whatever else the machine does, which changes
    from second to second, does the same to all of them.
    """
    total = dict.fromkeys(runs, 0.0)
    for part in parts:
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(repeat):
            for name, run in runs.items():
                start = time.process_time()
                run(part)
                seconds[name].append(time.process_time() - start)
        for name, each in seconds.items():
            total[name] += statistics.median(each)
    return total


def processor_seconds(repeat: int, run: Callable[[], object]) -> float:
    """Median processor seconds of this process in `repeat` runs."""
    seconds = []
    for _ in range(repeat):
        start = time.process_time()
        run()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)
