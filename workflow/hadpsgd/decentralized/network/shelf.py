"""Snapshots of a learner where others on its host read them, instead of having them sent.

A message through the kernel is copied twice, in pieces, each of which wakes a process. So a learner
keeps what it sends in memory that others can map (`segment`), and sends where it lies there. They
copy it, and say that they have it, as if it had been sent: until then it stays as it is.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import torch
from torch import Tensor

from hadpsgd.decentralized.network.segment import Description, Segment, mapped

_LINE = 64
"""Bytes of the head, and what snapshots lie at multiples of."""


class Shelf:
    """A learner's own: its snapshot, and room for other things that it sends.

    Args:
        like: a tensor of the type and length of a snapshot, on the CPU.
        room: bytes for other things.

    Raises:
        OSError: this system has no such memory.
    """

    def __init__(self, like: Tensor, *, room: int = 0) -> None:
        self._aside = _aligned(_LINE + like.nbytes)
        self.nbytes = self._aside + room
        self._segment = Segment(self.nbytes)
        self._head = np.frombuffer(self._segment.memory, np.uint64, 1)
        whole = torch.frombuffer(self._segment.memory, dtype=torch.uint8)
        self._address = whole.data_ptr()
        self._room = whole[self._aside :]
        self.snapshot = whole[_LINE : _LINE + like.nbytes].view(like.dtype).view(like.shape)
        self._placed: dict[tuple[int, int], int] = {}
        self._used = 0
        self.turn = 1
        """What is placed holds for one exchange, which this counts."""
        self.clear()

    @property
    def description(self) -> Description:
        """By which others find it."""
        return self._segment.description

    def place(self, payload: Tensor) -> int | None:
        """Where a contiguous tensor lies for the others until `clear`; None: there is no room."""
        at = payload.data_ptr() - self._address
        if at >= 0 and at + payload.nbytes <= self._aside:
            return at
        key = payload.data_ptr(), payload.nbytes
        if key not in self._placed:
            end = self._used + payload.nbytes
            if end > len(self._room):
                return None
            self._room[self._used : end].copy_(payload.view(-1).view(torch.uint8))
            self._placed[key] = self._aside + self._used
            self._used = min(_aligned(end), len(self._room))
        return self._placed[key]

    def clear(self) -> None:
        """The exchange has ended: who still reads was given up, and what it reads may change."""
        self.turn += 1
        self._head[0] = self.turn
        self._placed.clear()
        self._used = 0

    def close(self) -> None:
        """Nobody else finds it from here on; who has keeps it."""
        self._segment.close()


class Shown:
    """Another learner's shelf.

    Raises:
        OSError: it is not there, as on another host or in another container.
    """

    def __init__(self, description: Description, nbytes: int) -> None:
        self._bytes = np.frombuffer(mapped(description, nbytes=nbytes), np.uint8)
        self._bytes.flags.writeable = False
        self._head = self._bytes[:8].view(np.uint64)

    def take(self, into: memoryview, *, at: int, turn: int) -> bool:
        """Copy what lies there; False if the other one has ended that exchange meanwhile."""
        target = np.frombuffer(into, np.uint8)
        source = self._bytes[at : at + len(target)]
        if len(source) != len(target):
            return False
        np.copyto(target, source)
        return bool(self._head[0] == turn)


def shelf_of(like: Tensor, *, room: int) -> Shelf | None:
    """None where this system has no such memory, or not so much of it."""
    with suppress(OSError):
        return Shelf(like, room=room)
    return None


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _LINE) * _LINE
