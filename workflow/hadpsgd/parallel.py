"""Work spread over processes, results in order, never more than a few ahead of their reader."""

from __future__ import annotations

import argparse
import gc
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_start_method
from typing import Any, TypeVar

from threadpoolctl import threadpool_limits

from hadpsgd.errors import UserError
from hadpsgd.orphans import end_with_parent

Item = TypeVar("Item")
Result = TypeVar("Result")

# results that may wait for the reader, for each process
_AHEAD = 3
_function: Callable[[Any], Any]

MOST = 4096
"""Processes of one command."""


def add_jobs(parser: argparse.ArgumentParser, what: str = "processes") -> None:
    """The argument --jobs of a command: what a rule reserves as its threads."""
    parser.add_argument("--jobs", type=_at_least_one, default=1, help=f"{what} (1)")


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise UserError(f"--jobs {text}: at least one process is needed")
    if len(text) > 9 or int(text) > MOST:
        raise UserError(f"--jobs {text[:20]}: at most {MOST} processes")
    return int(text)


def _start(make: Callable[[], Callable[[Any], Any]], forked_by: int | None) -> None:
    global _function
    if forked_by is None:
        threadpool_limits(1)  # a process each core: more threads would fight for it
    else:
        _end_with(forked_by)
    _function = make()


def _end_with(parent: int) -> None:
    """Once it is killed nobody has work, and nothing that it left (locks, memory) is let go of."""
    end_with_parent(signal.SIGKILL)
    if os.getppid() != parent:  # it was killed before
        os._exit(1)


def _call(item: Any) -> Any:
    return _function(item)


def map_in_order(
    make: Callable[[], Callable[[Item], Result]], items: Iterable[Item], jobs: int
) -> Iterator[Result]:
    """Yield function(item) for every item, in order, with `jobs` processes.

    `make` is called once in every process and gives the function, so that what the function
    holds (open files, tables) need not be sent with every item. With one job all is done here.
    An exception of the function is raised here.
    """
    if jobs == 1:
        with threadpool_limits(1):
            function = make()
            yield from map(function, items)
        return
    gc.freeze()  # a collection in a child would touch, and so copy, what it shares
    forks = get_start_method() == "fork"
    start = (make, os.getpid() if forks else None)
    with ProcessPoolExecutor(jobs, initializer=_start, initargs=start) as pool:
        source = iter(items)
        with threadpool_limits(1 if forks else None):  # forked processes keep it: 1.6 MiB less each
            waiting: deque[Future[Result]] = deque(
                pool.submit(_call, item) for item in islice(source, _AHEAD * jobs)
            )
        try:
            while waiting:
                result = waiting.popleft().result()
                for item in islice(source, 1):
                    waiting.append(pool.submit(_call, item))
                yield result
        finally:
            gc.unfreeze()
            for future in waiting:
                future.cancel()
