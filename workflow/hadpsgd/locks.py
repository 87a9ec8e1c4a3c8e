"""A lock that keeps two launches of a run apart, and two workflows in one results folder."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from hadpsgd.errors import UserError
from hadpsgd.files import explain_os_errors
from hadpsgd.training import interrupt

GRACE_SECONDS = 10.0
"""How long one that is on its way out may still hold the lock."""
BRIEF_SECONDS = 1.0
"""What `look` may take, and a holder's child between fork and exec, which has its descriptors."""
_ENDED = ", ended"
_POLL_SECONDS = 0.2
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A lock at a moment."""

    held: bool
    content: str = ""
    changed: int = 0
    """When a holder last came or went, in ns; 0 if there was none yet."""
    sure: bool = True
    """Whether the file system has locks, so that `held` can be told."""


def look(path: Path) -> Seen:
    """Who has a lock; writes nothing."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            seen = _seen(descriptor)
            if not seen.content.endswith(_ENDED):  # one is there, or was killed
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return replace(seen, held=bool(seen.content))  # without a name it just begins
                except OSError as error:
                    return replace(seen, sure=error.errno not in _NO_LOCKS)
            return seen
        finally:
            os.close(descriptor)
    return Seen(held=False)


def ends(descriptor: int, who: str) -> None:
    """Write that the holder ends, for those that have looked and not taken the lock yet."""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{who}{_ENDED}\n".encode(), 0)


@contextmanager
def locked(
    path: Path,
    who: str,
    *,
    wait: bool = False,
    does: str = "trains this run",
    seen: Seen | None = None,
) -> Iterator[int | None]:
    """Hold a file's lock while the block runs; others are told `who` does what.

    Processes that inherit the descriptor keep the lock: after a kill -9 of the first it is free
    once the last of them has ended.

    With `seen` nobody is waited for, and the lock is refused if another had it since that look:
    what was decided by then may not hold any more.

    Yields the descriptor, or None where the file system has no locks.

    Raises:
        UserError: another process holds it and does not end soon; with `wait`, only if a signal
            comes meanwhile; or another has held it since `seen`.
    """
    with explain_os_errors(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        yield descriptor if _take(descriptor, path, who, does, wait, seen) else None
    finally:
        os.close(descriptor)


def _take(descriptor: int, path: Path, who: str, does: str, wait: bool, seen: Seen | None) -> bool:
    grace = GRACE_SECONDS if seen is None else BRIEF_SECONDS
    deadline, told = time.monotonic() + grace, seen is not None
    while not (taken := _try(descriptor, path)):
        if taken is None:
            return False
        holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
        if interrupt.asked() or (not wait and time.monotonic() > deadline):
            raise UserError(
                f"{holder or 'another process'} {does} already",
                where=path.parent,
                fix="Wait for its end, or stop it",
            )
        if not told:
            _say(f"{path.parent}: {holder or 'another process'} {does}; waiting for its end")
            told = True
        time.sleep(_POLL_SECONDS)
    if seen is not None and (seen.held or _seen(descriptor) != seen):
        raise UserError(
            "another workflow ended here meanwhile", where=path.parent, fix="Start again"
        )
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{who}\n".encode(), 0)
    return True


def myself(job: str = "") -> str:
    """This process, for others to read."""
    return f"process {os.getpid()} on {socket.gethostname()}" + (f" (Slurm job {job})" * bool(job))


def _seen(descriptor: int) -> Seen:
    content = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
    changed = os.fstat(descriptor).st_mtime_ns if content else 0
    return Seen(held=False, content=content, changed=changed)


def _try(descriptor: int, path: Path) -> bool | None:
    """Whether the lock is ours now; None where the file system has none."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        _say(f"warning: {path.parent}: no locks on this file system; launch a run only once")
        return None
    return True


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
