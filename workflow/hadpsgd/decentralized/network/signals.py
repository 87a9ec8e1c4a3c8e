"""Signals between the ranks of a group on one host, of two bytes each, through pipes.

Each rank has a pipe from every other one, which opens it by its process and descriptor (Linux:
/proc). When a rank goes, however that happens, the others read the end of its pipes at once.
"""

from __future__ import annotations

import contextlib
import os
import select
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from hadpsgd.decentralized.core.engine import LostMemberError
from hadpsgd.decentralized.network.waiting import LOOK_SECONDS

_SIGNAL = struct.Struct("=H")
_READ_BYTES = 64 * _SIGNAL.size

Offer = tuple[int, int, int]
"""Process, descriptor and file's number of a pipe."""
NO_OFFER: Offer = (0, 0, 0)


class Pipes:
    """Pipes to this rank: others open what is offered to them.

    Raises:
        OSError: no more files can be opened.
    """

    def __init__(self, others: Iterable[int]) -> None:
        self.incoming: dict[int, int] = {}
        self._offered: dict[int, int] = {}
        try:
            for rank in others:
                self.incoming[rank], self._offered[rank] = os.pipe()
        except OSError:
            close_all(self.incoming)
            close_all(self._offered)
            raise

    def offer(self, rank: int) -> Offer:
        """What a rank opens to be heard by this one."""
        descriptor = self._offered[rank]
        return os.getpid(), descriptor, os.fstat(descriptor).st_ino

    def withdraw(self) -> None:
        """Nobody opens them any more: from here on a pipe ends when the rank behind it does."""
        close_all(self._offered)


def opened(offer: Offer) -> int:
    """The descriptor by which another process hears of this one.

    Raises:
        OSError: it is not there, as on another host or in another container.
    """
    process, descriptor, file = offer
    path = Path(f"/proc/{process}/fd/{descriptor}")
    if path.readlink() != Path(f"pipe:[{file}]"):
        raise FileNotFoundError(f"{path} is something else")
    return os.open(path, os.O_WRONLY | os.O_CLOEXEC)


class Signals:
    """To and from all others of a group; used by one thread at a time.

    Args:
        incoming: descriptors to read, by rank.
        outgoing: descriptors to write, by rank.
        seconds: of silence after which a rank is given up.
        broken: asked now and then during a silence: whether the group has come apart otherwise.
    """

    def __init__(
        self,
        incoming: Mapping[int, int],
        outgoing: Mapping[int, int],
        *,
        seconds: float,
        broken: Callable[[], bool] = lambda: False,
    ) -> None:
        self._incoming = dict(incoming)
        self._outgoing = dict(outgoing)
        self._seconds = seconds
        self._broken = broken
        self._heard: dict[int, Counter[int]] = {rank: Counter() for rank in incoming}
        self._closed = False

    def tell(self, signal: int) -> None:
        """To all others; 0 .. 65,535. Who is gone is missed at the next `hear`."""
        for descriptor in self._outgoing.values():
            with contextlib.suppress(BrokenPipeError):
                os.write(descriptor, _SIGNAL.pack(signal))

    def hear(self, signal: int) -> None:
        """Wait until all others have told it once more.

        Raises:
            LostMemberError: one is gone, or silent for too long; or this one has left.
        """
        if self._closed:  # while something was begun: nothing of it counts
            raise LostMemberError("this rank has left its group")
        for rank, descriptor in self._incoming.items():
            heard = self._heard[rank]
            while not heard[signal]:
                heard.update(self._read(rank, descriptor))
            heard[signal] -= 1

    def _read(self, rank: int, descriptor: int) -> list[int]:
        ready, until = select.poll(), time.monotonic() + self._seconds
        ready.register(descriptor, select.POLLIN)
        while not ready.poll(LOOK_SECONDS * 1000):
            if self._broken() and not ready.poll(LOOK_SECONDS * 1000):
                raise LostMemberError(f"a connection of the group ended, rank {rank} is silent")
            if time.monotonic() > until:
                raise LostMemberError(
                    f"rank {rank} of the group was silent for {self._seconds:g} s"
                )
        read = os.read(descriptor, _READ_BYTES)  # whole ones: pipes take what is short as one
        if not read:
            raise LostMemberError(f"rank {rank} of the group is gone")
        return [signal for (signal,) in _SIGNAL.iter_unpack(read)]

    def close(self) -> None:
        """This rank goes: the others hear of it."""
        self._closed = True
        close_all(self._incoming)
        close_all(self._outgoing)


def close_all(descriptors: dict[int, int]) -> None:
    """Close, and take out, each."""
    while descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptors.popitem()[1])
