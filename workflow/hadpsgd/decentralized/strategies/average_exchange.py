"""Rounds in which everybody gets the mean of all: with all as partners, or by one collective."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor
from typing_extensions import override

from hadpsgd.decentralized.core.buffers import ALIGN
from hadpsgd.decentralized.core.coordination import Coordination
from hadpsgd.decentralized.core.events import Mix
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.place import Place
from hadpsgd.decentralized.core.sums import mean_of
from hadpsgd.decentralized.network.collectives import Group
from hadpsgd.decentralized.network.tcp import TcpTransport
from hadpsgd.decentralized.network.transport import Arrival
from hadpsgd.decentralized.strategies.exchange import Exchange
from hadpsgd.decentralized.strategies.peer_exchange import PeerExchange


class PeerAverageExchange(PeerExchange):
    """The mean of all super-learners' weights: an allreduce of each member and its counterparts.

    Each of n counterparts gets its part of their shard from all, sums it in the order of the nodes
    and hands the mean out: together a super-learner sends 2 (n-1)/n models, and all get the same
    bits.
    """

    transport: TcpTransport

    @cached_property
    def _rows(self) -> Tensor:
        """[nodes, shard / nodes]: everybody's values of the own part."""
        return torch.empty_like(self.transport.outgoing()).view(self.place.nodes, -1)

    @cached_property
    def _means(self) -> Tensor:
        """[nodes, shard / nodes]: all parts."""
        return torch.empty_like(self._rows)

    @override
    def run(self, round_: int) -> None:
        """Bring the own part together; `_combine` does the rest."""
        self._ready()
        own, others = self.transport.outgoing().view(self._rows.shape), self._others()
        self._rows[self.place.node].copy_(own[self.place.node])
        came = self.transport.exchange(
            2 * round_,
            list(others),
            list(others),
            self.note,
            payload={rank: own[j] for rank, j in others.items()},
            into=[self._rows[j] for j in others.values()],
        )
        self._take({others[rank]: arrival for rank, arrival in came.items()}, round_)

    @override
    def apply(self) -> None:
        """The average takes the place of the weights."""
        self.observer.averaged(self.delta, self.learner.weights)
        self.learner.replace(self.mix, self.delta)

    @override
    def _combine(self, came: Mapping[int, Arrival]) -> None:
        """The mean of the own part to all others, theirs from them."""
        others, own = self._others(), self._means[self.place.node]
        mean_of(self._rows, own)
        self.transport.exchange(
            2 * self.mix.round + 1,
            list(others),
            list(others),
            self.note,
            payload=own,
            into=[self._means[j] for j in others.values()],
        )
        self.delta[self.part].copy_(self._means.view(-1))

    def _others(self) -> dict[int, int]:
        """Rank of the counterpart -> node."""
        nodes = range(self.place.nodes)
        return {self.place.counterpart(j): j for j in nodes if j != self.place.node}


class InPlaceMean(Protocol):
    """`run` puts the mean over all learners into a buffer; blocks."""

    def run(self) -> None: ...


class AverageExchange(Exchange):
    """The mean of all learners' weights (super-learners of one), by an allreduce.

    Args:
        learner: whose weights.
        coordination: pauses and the end travel with the weights.
        place: of the learner.
        averaging: makes the allreduce of a buffer.
        groups: process groups that it uses.
    """

    def __init__(
        self,
        learner: Learner,
        coordination: Coordination,
        place: Place,
        averaging: Callable[[Tensor], InPlaceMean],
        groups: Sequence[Group] = (),
    ) -> None:
        super().__init__()
        self.learner = learner
        self.coordination = coordination
        self.place = place
        unit = place.world * ALIGN
        buffer = learner.weights.new_zeros(unit + learner.weights.numel())
        self.control, self.average = buffer[:unit], buffer[unit:]
        self.groups = groups
        self._averaging = averaging(buffer)
        self.mix = Mix(round=0, own=0, takes=())

    def snapshot(self) -> None:
        """All weights, and whether this learner wants all to pause or to end after the round."""
        following = self.learner.rounds + 1
        self.control[0] = float(self.coordination.pauses(following))
        self.control[1] = float(self.coordination.stops(following))
        # last: it orders the streams
        self.version, self._copying = self.learner.begin_snapshot(self.average)

    def run(self, round_: int) -> None:
        """Allreduce; all learners are at the same version."""
        self._copying.finish()
        self._averaging.run()
        others = (j for j in range(self.place.nodes) if j != self.place.node)
        takes = tuple((j, 1 / self.place.nodes, self.version) for j in others)
        self.mix = Mix(round=round_, own=self.version, takes=takes)

    def apply(self) -> None:
        """The average takes the place of the weights."""
        self.observer.averaged(self.average, self.learner.weights)
        self.learner.replace(self.mix, self.average)
        following = self.mix.round + 1
        if self.control[0] > 0:
            self.coordination.request_pause(following, now=True)
        if self.control[1] > 0:
            self.coordination.request_stop(following, now=True)
