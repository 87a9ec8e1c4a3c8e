"""Words (JSON) and tensors over a socket that two processes have for themselves, one after another.

For what is rare, or waits for its answer; weights that are mixed go by `tcp`.
"""

from __future__ import annotations

import json
import select
import socket
import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # who starts ranks has no use for torch
    from torch import Tensor

LONGEST = 2**16
"""Bytes of a word: who says more is a stranger."""
_LENGTH = struct.Struct("!I")


def say(link: socket.socket, word: dict[str, Any], tensor: Tensor | None = None) -> None:
    """A word, and the tensor that belongs to it (on a processor)."""
    told = json.dumps(word).encode()
    link.sendall(_LENGTH.pack(len(told)) + told)
    if tensor is not None:
        link.sendall(_bytes(tensor))


def hear(link: socket.socket) -> dict[str, Any]:
    """A word.

    Raises:
        OSError: the other side is gone.
        ValueError: it says something else.
    """
    length = bytearray(_LENGTH.size)
    _receive(link, memoryview(length))
    told = bytearray(min(*_LENGTH.unpack(length), LONGEST))
    _receive(link, memoryview(told))
    try:
        word = json.loads(told)
    except RecursionError:
        raise ValueError("no word: brackets without end") from None
    if not isinstance(word, dict):
        raise ValueError("no word")
    return word


def to_read(links: Iterable[socket.socket]) -> set[int]:
    """Descriptors of those where there is something to read, the end included; not waited for."""
    looking = select.poll()  # select() takes no descriptor above 1023
    for link in links:
        looking.register(link, select.POLLIN)
    return {descriptor for descriptor, _ in looking.poll(0)}


def fill(link: socket.socket, tensor: Tensor) -> None:
    """The tensor that belongs to the word before it."""
    _receive(link, _bytes(tensor))


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.detach().numpy().data.cast("B")


def _receive(link: socket.socket, into: memoryview) -> None:
    while into:
        count = link.recv_into(into)
        if not count:
            raise ConnectionResetError("it has ended")
        into = into[count:]
