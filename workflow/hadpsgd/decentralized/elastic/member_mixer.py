"""The mixer of a super-learner that takes part in changes of the membership; see `members`."""

from __future__ import annotations

import math
from collections.abc import Collection

from typing_extensions import override

from hadpsgd.decentralized.core.engine import LostMemberError
from hadpsgd.decentralized.elastic.members import MemberExchange
from hadpsgd.decentralized.network.transport import UnsettledError
from hadpsgd.decentralized.strategies.members import MemberMixer


class ElasticMemberMixer(MemberMixer):
    """A `MemberMixer` whose super-learner takes part in changes of the membership."""

    exchange: MemberExchange  # type: ignore[assignment]

    @property
    @override
    def alone(self) -> bool:
        """Of the exchange."""
        return self.exchange.alone

    @override
    def go_alone(self, lost: LostMemberError) -> None:
        """The first member does, if the membership allows it; others may help (`helpers`)."""
        exchange = self.exchange
        if exchange.place.member or not exchange.membership.reduces:
            raise lost
        if not exchange.alone:
            self.gradients.abandon()
            exchange.alone = True
            self.wake()

    @override
    def _turn(self) -> None:
        try:
            self.exchange.look(self._next)
            super()._turn()
        except UnsettledError as error:
            if self._closed:
                raise
            self._change(error.lost)

    def reunite(self) -> bool:
        """New members are there: tell all others; False if the run ends before they know.

        The first member's compute thread waits meanwhile, so that its weights stand still from then
        on: no round begins before the new members do.
        """
        exchange, changed = self.exchange, self.learner.changed
        with changed:
            exchange.reunites = True
        self.wake()
        self._wait(lambda: self._at_the_end or not exchange.reunites)
        with changed:
            told, exchange.reunites = not exchange.reunites, False
        return told

    @property
    def _at_the_end(self) -> bool:
        return self.paused and self.coordination.stops(self.learner.rounds)

    @property
    def rests(self) -> int:
        """Turns without a gradient so far."""
        return self._rests

    def enter(self, epoch: int, *, rests: int) -> None:
        """As a new member, before `start`."""
        self._rests = rests
        self.exchange.enter(epoch)

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
