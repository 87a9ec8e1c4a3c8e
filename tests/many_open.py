"""More open files than select() can tell apart."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest


@contextmanager
def many_open() -> Iterator[None]:
    """What is opened meanwhile has a number above 1023; skips a test where a limit forbids it."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < 2048:
        pytest.skip(f"a process may have {before[1]} files open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], 2048), before[1]))
    try:
        with ExitStack() as stack:
            for _ in range(1024):
                stack.enter_context(Path(os.devnull).open())
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
