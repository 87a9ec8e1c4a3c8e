"""Memory that a step frees is there for the next one."""

from __future__ import annotations

import platform
import resource

import pytest
import torch
from processes import collect, launch

from hadpsgd.decentralized.heap import keep_freed_memory

MEGABYTE = 2**18
"""Elements."""


def faults(rank: int, keep: bool) -> int:  # noqa: ARG001
    """Page faults of twenty steps that need 8 blocks of 4 MB each."""
    if keep:
        keep_freed_memory()

    def step() -> None:
        blocks = [torch.ones(4 * MEGABYTE) for _ in range(8)]
        del blocks

    for _ in range(3):
        step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_freed_memory_is_kept() -> None:
    usual = collect(launch(1, faults, False))[0]
    kept = collect(launch(1, faults, True))[0]
    assert not usual.error and not kept.error
    assert kept.value < 1000
    assert kept.value < usual.value / 10
