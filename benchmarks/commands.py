"""Stages as the workflow calls them, and functions, timed."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable


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


def processor_seconds(repeat: int, run: Callable[[], object]) -> float:
    """Median processor seconds of this process in `repeat` runs."""
    seconds = []
    for _ in range(repeat):
        start = time.process_time()
        run()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)
