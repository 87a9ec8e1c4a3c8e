"""Folders that are removed at the end of their use, or after a kill, when the next one is made."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_SUFFIX = ".tmp"


@contextmanager
def scratch_folder(parent: Path, name: str) -> Iterator[Path]:
    """A hidden folder in `parent`, for this process and its children alone.

    First those are removed that processes of this host made there under the same name, and were
    killed. Who uses one holds a lock on it, so those of others that are at work stay. What was left
    on another host, or through another mount, stays, too: locks are not seen there everywhere.
    """
    prefix = f".{name}.{_host()}-{parent.stat().st_dev:x}."
    _sweep(parent, prefix)
    with ExitStack() as held:
        while True:
            folder = Path(tempfile.mkdtemp(prefix=prefix, suffix=_SUFFIX, dir=parent))
            held.callback(shutil.rmtree, folder, ignore_errors=True)
            with suppress(OSError):  # gone already, or there are no locks here
                descriptor = os.open(folder, os.O_RDONLY)
                held.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_SH)
            if folder.exists():  # nobody took it for one that is left, before it was locked
                break
        yield folder


def _sweep(parent: Path, prefix: str) -> None:
    """Remove what the dead left. Nothing here is worth an error."""
    left = re.compile(re.escape(prefix) + r"[^.]+" + re.escape(_SUFFIX))
    with suppress(OSError):
        for folder in [path for path in parent.iterdir() if left.fullmatch(path.name)]:
            with suppress(OSError), ExitStack() as held:
                descriptor = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
                held.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)


@cache
def _host() -> str:
    """Of this host since it was started; containers of a host have the same one."""
    try:
        return _BOOT_ID.read_text("ascii").strip()[:8]
    except (OSError, ValueError):
        return f"{os.getpid()}"  # not Linux: nothing that was left is recognised
