"""Work spread over processes: in order, a thread each."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np  # its linear algebra has threads
from threadpoolctl import threadpool_info

from hadpsgd.parallel import map_in_order


def threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info()}


def looking() -> Callable[[int], tuple[int, int, set[int]]]:
    return lambda item: (item, os.getpid(), threads())


def test_processes_have_a_thread_each() -> None:
    assert np.linalg.det(np.eye(2)) == 1.0
    before = threads()
    found = list(map_in_order(looking, range(6), 2))
    assert [item for item, *_ in found] == list(range(6))
    assert os.getpid() not in {process for _, process, _ in found}
    assert all(each == {1} for *_, each in found)
    assert threads() == before
