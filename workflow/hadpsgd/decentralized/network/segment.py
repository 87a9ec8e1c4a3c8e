"""Memory that several processes of a host see: one makes it, the others map it.

It is a file without a name (Linux: memfd_create): it goes with the last process that maps it,
however that ends, and no size of /dev/shm limits it.
"""

from __future__ import annotations

import mmap
import os
import secrets
from pathlib import Path

Memory = mmap.mmap
FIELDS = 3
"""Numbers of a description."""
Description = tuple[int, int, int]
"""Which memory it is: process, descriptor, and a number drawn at random."""


class Segment:
    """Memory of this process, of zeros, which others may map until `close`.

    Raises:
        OSError: there is none, or this system has no such files.
    """

    def __init__(self, nbytes: int) -> None:
        if not hasattr(os, "memfd_create"):
            raise OSError("no memory without a name on this system")
        number = secrets.randbits(62)
        self._file = os.memfd_create(_name(number), os.MFD_CLOEXEC)
        try:
            os.posix_fallocate(self._file, 0, nbytes)  # or a write to it could end the process
            self.memory = mmap.mmap(self._file, nbytes)
        except OSError:
            self.close()
            raise
        self.description = os.getpid(), self._file, number
        """The `FIELDS`."""

    def close(self) -> None:
        """Nobody else maps it from here on; who has, and this process, keep it."""
        os.close(self._file)


def mapped(description: Description, *, nbytes: int) -> Memory:
    """Another process' memory, by its description.

    Raises:
        OSError: it is not there, as on another host or in another container.
    """
    process, descriptor, number = description
    path = Path(f"/proc/{process}/fd/{descriptor}")
    if path.readlink() != Path(f"/memfd:{_name(number)} (deleted)"):
        raise FileNotFoundError(f"{path} is something else")
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return mmap.mmap(file, nbytes)
    except ValueError as error:  # it is smaller
        raise OSError(str(error)) from None
    finally:
        os.close(file)


def _name(number: int) -> str:
    return f"hadpsgd-{number:x}"
