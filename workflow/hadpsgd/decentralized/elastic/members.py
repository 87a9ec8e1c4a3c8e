"""Super-learners that may die and come, each as a whole (see `membership`).

All members of all super-learners take part in a change. The copies of a super-learner stay equal
though its members hear of the change at different moments:

- Each reports how many updates (and rests) it has decided on; all do the largest of these numbers,
  and go over to the new membership at this point. What was mixed in before has its place before it.
- A round that was broken off counts if all members held their partner's shard, and all counterparts
  theirs. A member that has all shards of the mix knows that no other member lacks this one's: those
  who were broken off while they gathered shards finish it among themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

import torch
from torch import Tensor
from typing_extensions import override

from hadpsgd.decentralized.elastic.decision import Decision
from hadpsgd.decentralized.elastic.exchange import ElasticExchange
from hadpsgd.decentralized.network.transport import Arrival, UnsettledError
from hadpsgd.decentralized.strategies.exchange import PeerExchange
from hadpsgd.decentralized.strategies.members import MemberMixer

SHARDS = 1 << 61
"""Rounds from here on (below gifts) are not mixes: shards of a mix that was broken off."""


class MemberExchange(ElasticExchange):
    """An `ElasticExchange` of one member of a super-learner.

    The members' shards of a mix go the way of the weights, not through a process group: an exchange
    can be broken off, and says what has arrived.
    """

    _mixing = False
    """Whether a snapshot was taken whose mix is not whole yet."""
    _came: Mapping[int, Arrival] | None = None
    """Whose snapshots are here, by node, once the exchange with other super-learners has ended."""
    _host: Tensor | None = None
    """On a GPU: room for the shards in the host's memory."""
    _gatherers: Collection[int] = ()
    """Members that lack shards of a mix that was broken off."""
    _broken = 0
    """The round of that mix."""
    _number = 0
    """Round under whose number shards are gathered."""

    @property
    @override
    def peer_bytes(self) -> int:
        """Without what members send each other, which their group counts."""
        return self.transport.bytes_sent - self.members.bytes_sent

    @override
    def run(self, round_: int) -> None:
        """As usual; UnsettledError where it is broken off."""
        self._mixing, self._came = True, None
        self._broken = self._number = round_
        self._gatherers = self.place.others
        try:
            PeerExchange.run(self, round_)
        except UnsettledError as error:
            if self._came is None:
                size = self.place.size
                self._came = {rank // size: came for rank, came in error.arrived.items()}
            raise
        self._mixing = False

    @override
    def _take(self, came: Mapping[int, Arrival], round_: int) -> None:
        self._came = came
        super()._take(came, round_)

    @override
    def _gather(self) -> None:
        shards = self.delta
        if shards.is_cuda:
            if self._host is None:
                self._host = torch.empty_like(shards, device="cpu", pin_memory=True)
            self._host[self.part].copy_(shards[self.part])
            shards = self._host
        rows = shards.view(self.place.size, -1)
        others, first = sorted(self._gatherers), self.place.rank - self.place.member
        self.links.exchange(
            self._number,
            others,
            others,
            self.note,
            payload=rows[self.place.member],
            into=[rows[rank - first] for rank in others],
        )
        self.members.bytes_sent += rows[0].nbytes * len(others)
        if shards is not self.delta:
            self.delta.copy_(shards)

    def look(self, round_: int) -> None:
        """Break off where a change was proposed, or a partner is gone; `round_` comes next.

        Who has come to the end of the run, and is about to say so, takes no part any more.

        Raises:
            UnsettledError: there is a change to take part in.
        """
        if self.coordination.stops(round_):
            return
        lost = self._lost_while_idle(round_)
        if lost or self.must_change():
            raise UnsettledError(rank=self.place.rank, round_=round_, arrived={}, lost=lost)

    def change(self, lost: Collection[int], *, round_: int, steps: int) -> Decision:
        """Take part in a change, with `steps` updates decided on; `round_` is not mixed in yet."""
        held = (self._came or {}) if self._mixing else {}
        report = self._report(round_, exchanging=self._mixing, holds=held, steps=steps)
        return self.membership.change(report, lost)

    def settle(self, decision: Decision) -> bool:
        """Make the mix of a round that was broken off, from what counts of it, if anything does.

        Raises:
            UnsettledError: another member died.
        """
        self.links.reset(decision.epoch)
        mixing, came = self._mixing, self._came or {}
        self._mixing = False
        settled = decision.settled(self.place.rank) if mixing else []
        if not settled:
            return False
        self._number = SHARDS + decision.epoch
        self._gatherers = [r for r in self.place.others if decision.reports[r].exchanging]
        interrupted, self.links.interrupted = self.links.interrupted, lambda: False
        try:
            # in the planned order, not that of arrival: all shards must be summed in one
            plan = self.schedule.round(self._broken).receives(self.place.node)
            self._take({j: came[j] for j in plan if j in settled}, self._broken)
        finally:
            self.links.interrupted = interrupted
        return True

    def begin_anew(self, decision: Decision) -> Callable[[], None]:
        """Go over to the new membership; what is returned gives newcomers their weights."""
        gift = self._gift(decision)
        self.learner.skip_to(decision.round)
        self._follow(decision)
        return lambda: self._give(decision, gift)


class ElasticMemberMixer(MemberMixer):
    """A `MemberMixer` whose super-learner takes part in changes of the membership."""

    exchange: MemberExchange  # type: ignore[assignment]

    @override
    def _turn(self) -> None:
        try:
            self.exchange.look(self._next)
            super()._turn()
        except UnsettledError as error:
            if self._closed:
                raise
            self._change(error.lost)

    def _change(self, lost: Collection[int]) -> None:
        changed, learner, exchange = self.learner.changed, self.learner, self.exchange
        with changed:
            self._limit = max(self._turns, self._decided)
            round_, steps = self._next, int(self._limit)
        decision = exchange.change(lost, round_=round_, steps=steps)
        with changed:
            self._limit = decision.steps(exchange.place.node)
            changed.notify_all()
            changed.wait_for(lambda: self._turns >= self._limit or self._closed)
            if self._arrived:
                self._place()
        if exchange.settle(decision):
            with changed:
                self._place()
        with changed:
            give = exchange.begin_anew(decision)
            self.started = learner.rounds
            self._limit = math.inf
            changed.notify_all()
        give()
