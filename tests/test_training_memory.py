"""What training's memory does between steps."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import resource, torch
from hadpsgd.training import memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.zeros(2**24).add_(1)  # 64 MiB, freed at once
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

without = [faults() for _ in range(3)]
kept = memory.keep()
print(kept, min(without), min([faults() for _ in range(6)]))
"""


def test_a_step_takes_the_memory_of_the_one_before() -> None:
    """Page faults, counted by the kernel: every touch of a page that the process does not have."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=300
    )
    kept, without, within = done.stdout.split()
    if kept != "True":
        pytest.skip("no glibc")
    assert int(within) < 0.1 * int(without)
