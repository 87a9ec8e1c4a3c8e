"""Continuous mixing of a super-learner, whose members hold equal copies of one learner.

Their copies stay equal, bit for bit, if all put the same events into the same order. Threads of
several processes run beside each other, so the members agree on the two things that timing could
decide otherwise:

- After how many updates the snapshot of a round is taken. All tell each other how many they have
  decided on (applied, or about to apply), and take it after the largest of these numbers: who is
  behind has all members' gradients at hand already. Who begins a round invites the others by this.
  A rest counts as an update.
- Which mixes an update folds in, or a rest (a turn without a gradient): those that have arrived at
  all members when their gradients have.
  A mix that has arrived, but not everywhere, waits until the next update or snapshot.

While members talk about a snapshot, none decides on an update; a gradient under way goes on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from typing_extensions import override

from hadpsgd.decentralized.core.coordination import living
from hadpsgd.decentralized.network.collectives import Group, LostMemberError, wait
from hadpsgd.decentralized.strategies.free_mixer import IDLE_SECONDS, FreeMixer
from hadpsgd.decentralized.strategies.strategy import Counters

if TYPE_CHECKING:
    from hadpsgd.decentralized.strategies.peer_exchange import PeerExchange


class MemberMixer(FreeMixer):
    """A `FreeMixer` for one member of a super-learner.

    Args:
        gradients: the members, for the compute thread.
        rest: as for `FreeMixer`; the exchange is a `PeerExchange`.
    """

    exchange: PeerExchange

    def __init__(self, *args: object, gradients: Group, **rest: object) -> None:
        super().__init__(*args, **rest)  # type: ignore[arg-type]
        self.gradients = gradients
        self._arrived = False
        """Whether a round's mix is here and has no place among the events yet."""
        self._rests = 0
        self._decided = 0
        """Turns taken, or about to be with mixes that are settled."""
        self._limit = math.inf
        """Turns from this number on must not be decided on now."""
        self._pause = self._stop = self._done = False
        """What this member wants to tell when the next round begins."""
        device = torch.device("cpu") if gradients.by_host else self.learner.weights.device
        self._count = torch.zeros(1, dtype=torch.int64, device=device)
        self._counts = torch.zeros(gradients.size, dtype=torch.int64, device=device)

    @override
    def decide(self) -> None:
        """Tell the other members which mixes are here, beside the rest of the allreduce."""
        with self.learner.changed:
            self._wait(lambda: self._turns < self._limit)
            self._decided = self._turns + 1
            self._count.fill_(self._next)
        self._telling = []
        with self._losing():
            if not self.alone:
                self._telling = self.gradients.begin_gather(self._counts, self._count)

    @override
    def before_update(self) -> None:
        """Fold in those that are here at all members."""
        with self._losing():
            wait(self._telling)
        everywhere = min((self._count if self.alone else self._counts).tolist())
        with self.learner.changed:
            if self.learner.rounds < everywhere:
                self._place()

    @override
    def settle(self) -> None:
        """All members do so in the same place among their updates: a turn without a gradient."""
        self.decide()
        self.before_update()
        with self.learner.changed:
            self.learner.settle()
            self._rests += 1
            self.learner.changed.notify_all()

    @override
    def request_pause(self, *, now: bool = False) -> None:
        """Told to all when the next round begins."""
        self._pause = True

    @override
    def passed(self) -> None:
        """A wish that was not told has come true."""
        self._pause = False
        super().passed()

    @override
    def request_stop(self, *, now: bool = False) -> None:
        """Told to all when the next round begins."""
        self._stop = True

    @override
    def finish(self) -> None:
        """From here on there are no updates to agree with."""
        with self.learner.changed:
            self.finished = self._done = True
            if self._arrived:
                self._place()

    @override
    def counters(self) -> Counters:
        """A mix that has arrived counts as missed."""
        counters = super().counters()
        return Counters(**{**counters.__dict__, "missed": counters.missed + self._arrived})

    @contextmanager
    def _losing(self) -> Iterator[None]:
        """The other members may be lost meanwhile."""
        try:
            yield
        except LostMemberError as lost:
            self.go_alone(lost)

    @property
    def _turns(self) -> int:
        """Updates and rests so far: the same number at all members at the same point."""
        return self.learner.steps + self._rests

    @property
    def _next(self) -> int:
        """Number of the next round to begin, if none is under way."""
        return self.learner.rounds + self._arrived

    @override
    def _may_start(self) -> bool:
        return (
            self.started == self._next
            and not self.coordination.pauses(self.started)
            and self.strategy.may_start(self.counters())
        )

    @override
    def _invited(self) -> bool:
        wishes = self._pause or self._stop or self._done
        return (
            wishes or self.coordination.urgent(self.started) or self.exchange.invited(self.started)
        )

    @override
    def _communicate(self) -> None:
        while not self._closed:
            self._turn()

    def _turn(self) -> None:
        """A round, or a while without one."""
        if not self._start_round():
            self._idle(IDLE_SECONDS)
            return
        self._round()
        with self.learner.changed:
            self._arrived = True
            if self.finished:
                self._place()
            self.learner.changed.notify_all()

    @override
    def _start_round(self) -> bool:
        changed = self.learner.changed
        with changed:
            if not self._may_start():
                return False
            self._tell()
            self._limit = max(self._turns, self._decided)
            note = self.coordination.note(version=0, steps=int(self._limit))
        notes = self.exchange.agree(self.started, note)
        with changed:
            self._limit = max(told.steps for told in (note, *notes))
            changed.notify_all()
            changed.wait_for(lambda: self._turns >= self._limit or self._closed)
            if self._arrived:
                self._place()
            self._begin_round()
            self._limit = math.inf
            changed.notify_all()
        return not self._closed

    def _tell(self) -> None:
        """Put wishes into the next note: all members begin this round, and hear it."""
        # alone there is nobody to tell, and what is picked could be this round, which begins now
        alone = len(living(self.coordination.schedule)) == 1
        first = self.started + alone
        if self._pause:
            self.coordination.request_pause(first)
        if self._stop:
            self.coordination.request_stop(first)
        if self._done:
            self.coordination.finish(first)
        self._pause = self._stop = self._done = False

    def _place(self) -> None:
        """The mix that has arrived comes next among the learner's events."""
        self.learner.order_streams()
        self.exchange.apply()
        self._arrived = False
