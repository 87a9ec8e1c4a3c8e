"""A lock that keeps two launches of a run apart."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hadpsgd.files import explain_os_errors
from hadpsgd.training.metrics import say

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)


@contextmanager
def locked(path: Path) -> Iterator[int | None]:
    """Hold a file's lock while the block runs; waits for whoever holds it.

    Processes that inherit the descriptor keep the lock: after a kill -9 of the first it is free
    once the last of them has ended.

    Yields the descriptor, or None where the file system has no locks.
    """
    with explain_os_errors(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        yield descriptor if _take(descriptor, path) else None
    finally:
        os.close(descriptor)


def _take(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 100, 0).decode(errors="replace").strip()
        say(f"{path.parent}: {holder or 'another process'} trains this run; waiting for its end")
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        say(f"warning: {path.parent}: no locks on this file system; launch a run only once")
        return False
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"process {os.getpid()}\n".encode(), 0)
    return True
