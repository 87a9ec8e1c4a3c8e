"""What ranks of a group on one host use together: memory, and signals about what is in it.

Each offers its own to the others by numbers that they open it by. All use it, or none: whether the
others could is told, too. So ranks in containers apart, or on a system without such things, go on
by messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from hadpsgd.decentralized.network.collectives import Group
from hadpsgd.decentralized.network.segment import FIELDS, Memory, Segment, mapped
from hadpsgd.decentralized.network.signals import NO_OFFER, Pipes, Signals, close_all, opened

_T = TypeVar("_T")


class Neighbours:
    """Of one rank of a group: what it uses with all others. All ranks ask in one order.

    Raises:
        LostMemberError: a rank is gone (this and all methods).
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._tags = group.new_tag(), group.new_tag()
        self._life = -1
        self._signals: Signals | None = None

    def signals(self) -> Signals | None:
        """To and from all; None where there are none."""
        group = self._group
        if self._life != group.lives:
            near = not (group.apart or group.by_host)
            self._signals = self._agree_on_signals() if near else None
            self._life = group.lives
        return self._signals

    def memory(self, nbytes: int) -> Sequence[Memory] | None:
        """So many bytes of every rank, of zeros at first; None where that cannot be."""
        rank = self._group.rank
        own: Segment | None = None
        with suppress(OSError):
            own = Segment(nbytes)

        def take(rows: list[list[int]]) -> Sequence[Memory]:
            if own is None:
                raise OSError
            return [
                own.memory if r == rank else mapped((row[0], row[1], row[2]), nbytes=nbytes)
                for r, row in enumerate(rows)
            ]

        try:
            return self._agreed([0] * FIELDS if own is None else own.description, take)
        finally:
            if own is not None:
                own.close()

    def _agree_on_signals(self) -> Signals | None:
        group = self._group
        others = [rank for rank in range(group.size) if rank != group.rank]
        pipes: Pipes | None = None
        offers = dict.fromkeys(range(group.size), NO_OFFER)
        with suppress(OSError):
            pipes = Pipes(others)
            offers |= {rank: pipes.offer(rank) for rank in others}
        outgoing: dict[int, int] = {}

        def take(rows: list[list[int]]) -> bool:
            if pipes is None:
                raise OSError
            at = len(NO_OFFER) * group.rank
            for rank in others:
                process, descriptor, file = rows[rank][at : at + len(NO_OFFER)]
                outgoing[rank] = opened((process, descriptor, file))
            return True

        agreed = None
        try:
            agreed = self._agreed([number for offer in offers.values() for number in offer], take)
        finally:
            if pipes is not None:
                pipes.withdraw()
            if not agreed:
                close_all(outgoing)
                if pipes is not None:
                    close_all(pipes.incoming)
        if not agreed or pipes is None:
            return None
        found = Signals(pipes.incoming, outgoing, seconds=group.seconds, broken=group.broken)
        group.leaving.append(found.close)
        return found

    def _agreed(self, offer: Sequence[int], take: Callable[[list[list[int]]], _T]) -> _T | None:
        """What this rank made of all ranks' offers, if all could."""
        rows = self._group.all_tell(offer, self._tags[0])
        taken = None
        with suppress(OSError):
            taken = take(rows)
        answers = self._group.all_tell([taken is not None], self._tags[1])
        return taken if all(answer for (answer,) in answers) else None
