"""Averages over the ranks of a group, bit for bit the same on every rank and in every run.

An allreduce's order of summation is the backend's secret. Here every rank gets its shard of
everybody's values, sums them in the order of the ranks and hands the mean out again: the bytes of
a ring allreduce, 2 (N-1)/N of the buffer of each rank, and an order that a replay can repeat.

Ranks of one host share memory, where they can: each reads the others' values there. A message
goes through the kernel in pieces, each of which wakes a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from hadpsgd.decentralized.core.sums import mean_of
from hadpsgd.decentralized.network.collectives import Group, wait
from hadpsgd.decentralized.network.near import Neighbours
from hadpsgd.decentralized.network.segment import Memory
from hadpsgd.decentralized.network.signals import Signals


class Averaging:
    """The mean of one buffer over a group, in place, again and again.

    `start`, `spread` and `wait` are its three parts; other work may go on between them. The
    buffer's length is a multiple of the group's size.

    Args:
        neighbours: of the group, where its ranks may share memory. The first `start`, and the
            first one after the group was renewed, finds out whether they can.
    """

    def __init__(self, group: Group, buffer: Tensor, neighbours: Neighbours | None = None) -> None:
        self.group = group
        self.buffer = buffer
        self._neighbours = neighbours
        self._tags = group.new_tag(), group.new_tag()
        self._way: _Way | None = None
        self._life = -1

    def start(self) -> None:
        """Begin to hand every rank its shard.

        Raises:
            LostMemberError: a rank is gone (this and the other parts).
        """
        if self._life != self.group.lives:
            self._way = None  # lets go of the memory before
            self._way = self._in_memory() or _Messages(self.group, self.buffer, self._tags)
            self._life = self.group.lives
        self._begun.start()

    def spread(self) -> None:
        """Sum the own shard, begin to hand it out.

        Others' means may come into shards that are on their way still: a rank sends its mean when
        it has this rank's shard whole.
        """
        self._begun.spread()

    def wait(self) -> None:
        """Until `buffer` holds the mean."""
        self._begun.wait()

    def rows(self) -> Sequence[Tensor]:
        """Every rank's values of this rank's shard, as averaged last; until a rank starts anew."""
        return self._begun.rows()

    def run(self) -> None:
        """All three."""
        if self.group.size > 1:
            self.start()
            self.spread()
            self.wait()

    def _in_memory(self) -> _InMemory | None:
        if self._neighbours is None or self.buffer.device.type != "cpu":
            return None
        signals = self._neighbours.signals()
        if signals is None:
            return None
        count = self.buffer.numel() + self.buffer.numel() // self.group.size
        pieces = self._neighbours.memory(count * self.buffer.element_size())
        if pieces is None:
            return None
        return _InMemory(self.group, self.buffer, self._tags, signals, pieces)

    @property
    def _begun(self) -> _Way:
        assert self._way is not None  # `start` comes first
        return self._way


class _Way(Protocol):
    """How values travel."""

    def start(self) -> None: ...

    def spread(self) -> None: ...

    def wait(self) -> None: ...

    def rows(self) -> Sequence[Tensor]: ...


class _Messages:
    """Shards and means are sent."""

    def __init__(self, group: Group, buffer: Tensor, tags: tuple[int, int]) -> None:
        self.group = group
        self.buffer = buffer
        self._tags = tags
        self._exchanged = group.exchanged(buffer)
        self._rows = torch.empty_like(self._exchanged).view(group.size, -1)
        self._shard = torch.empty_like(self._rows[0])

    def start(self) -> None:
        if self._exchanged is not self.buffer:
            self._exchanged.copy_(self.buffer)
        self._coming, self._going = self.group.begin_scatter(
            self._rows, self._exchanged, self._tags[0]
        )

    def spread(self) -> None:
        wait(self._coming)
        mean_of(self._rows, self._shard)
        self._coming = self.group.begin_gather(self._exchanged, self._shard, self._tags[1])

    def wait(self) -> None:
        wait(self._coming + self._going)
        if self._exchanged is not self.buffer:
            self.buffer.copy_(self._exchanged)

    def rows(self) -> Sequence[Tensor]:
        return list(self._rows)


class _InMemory:
    """Values and means lie in memory that all ranks see; signals say that they do.

    A rank's values may change as soon as all others' means are there: they have read them. Its
    mean may change as soon as all others' next values are there: they have taken it before.

    Args:
        tags: signals for values and means.
        pieces: of every rank: its values, [elements], and the mean of its shard.
    """

    def __init__(
        self,
        group: Group,
        buffer: Tensor,
        tags: tuple[int, int],
        signals: Signals,
        pieces: Sequence[Memory],
    ) -> None:
        self.group = group
        self.buffer = buffer
        self._values_there, self._means_there = tags
        self._signals = signals
        whole = [torch.frombuffer(piece, dtype=buffer.dtype) for piece in pieces]
        values = [each[: buffer.numel()] for each in whole]
        self._values = values[group.rank]
        self._rows = [each.view(group.size, -1)[group.rank] for each in values]
        self._means = [each[buffer.numel() :] for each in whole]

    def start(self) -> None:
        self._values.copy_(self.buffer)
        self._tell(self._values_there)

    def spread(self) -> None:
        self._signals.hear(self._values_there)
        mean_of(self._rows, self._means[self.group.rank])
        self._tell(self._means_there)

    def wait(self) -> None:
        self._signals.hear(self._means_there)
        for shard, mean in zip(self.buffer.view(self.group.size, -1), self._means, strict=True):
            shard.copy_(mean)

    def rows(self) -> Sequence[Tensor]:
        return self._rows

    def _tell(self, what: int) -> None:
        self.group.bytes_sent += self._means[0].nbytes * (self.group.size - 1)
        self._signals.tell(what)
