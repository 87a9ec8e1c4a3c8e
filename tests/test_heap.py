"""Memory that a step frees is there for the next one."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource
import sys
import torch
from hadpsgd.decentralized.core.heap import keep_freed_memory

def step():
    blocks = [torch.ones(2**20) for _ in range(8)]  # of 4 MB

if sys.argv[1] == "kept":
    assert keep_freed_memory()
for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


EAGER = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}
"""glibc as it begins; later it adapts, more or less as luck will have it."""


def faults(heap: str) -> int:
    """Page faults of twenty steps of a process of its own: forks inherit the heap's settings."""
    command = [sys.executable, "-c", FAULTS, heap]
    env = {**os.environ, **EAGER}
    return int(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_freed_memory_is_kept() -> None:
    # now and then the heap still grows by a block, of 1024 pages
    assert faults("kept") < faults("usual") / 10
