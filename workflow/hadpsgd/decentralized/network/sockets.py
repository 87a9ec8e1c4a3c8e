"""Connections that a library keeps to itself: found by what is new, closed under it.

gloo has no call that ends a group. Who goes away from one, and lives, must end its connections all
the same: others wait for what never comes.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

Names = tuple[Any, Any]
"""The two addresses of a connection; the other one is None of a socket that listens."""


def found() -> dict[int, Names]:
    """The internet sockets of this process, by descriptor."""
    sockets: dict[int, Names] = {}
    for descriptor in [int(entry.name) for entry in Path("/dev/fd").iterdir()]:
        with contextlib.suppress(OSError), _copy(descriptor) as copy:
            if copy.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            other = None
            with contextlib.suppress(OSError):
                other = copy.getpeername()
            sockets[descriptor] = copy.getsockname(), other
    return sockets


def _copy(descriptor: int) -> socket.socket:
    """Of a socket, to be closed.

    Raises:
        OSError: it is none, or gone.
    """
    copy = os.dup(descriptor)
    try:
        return socket.socket(fileno=copy)
    except OSError:  # of a file, say: left open, each look at all descriptors would double them
        os.close(copy)
        raise


def new_since(before: Mapping[int, Names]) -> Collection[tuple[int, Names]]:
    """Connections that were made meanwhile, but for those from or to an address of one before.

    These are others' that went on meanwhile: a listener's, or again to the same server.
    """
    own = {names[0] for names in before.values()}
    others = {names[1] for names in before.values()}
    return [
        (descriptor, names)
        for descriptor, names in found().items()
        if names[1] is not None and names[0] not in own and names[1] not in others
    ]


def any_closed(connections: Collection[tuple[int, Names]]) -> bool:
    """Whether one of them is not there any more."""
    return any(not _is_there(descriptor, names) for descriptor, names in connections)


def all_closed(connections: Collection[tuple[int, Names]]) -> bool:
    """Whether none of them is there any more."""
    return not any(_is_there(descriptor, names) for descriptor, names in connections)


def _is_there(descriptor: int, names: Names) -> bool:
    try:
        with _copy(descriptor) as copy:
            return bool(copy.getsockname() == names[0])
    except OSError:
        return False


def shut_down(connections: Collection[tuple[int, Names]]) -> None:
    """Both ways, under who uses them; those that are there no more are left."""
    there = found()
    for descriptor, names in connections:
        if there.get(descriptor) == names:
            with contextlib.suppress(OSError), _copy(descriptor) as copy:
                copy.shutdown(socket.SHUT_RDWR)
