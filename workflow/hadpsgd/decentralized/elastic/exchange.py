"""Exchanges that outlive the death of partners, and let newcomers in (see `membership`)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence

import torch.distributed as dist
from typing_extensions import override

from hadpsgd.decentralized.core.coordination import Coordination, living
from hadpsgd.decentralized.core.events import Join
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.note import Note
from hadpsgd.decentralized.core.place import Place
from hadpsgd.decentralized.elastic.membership import LOOK_SECONDS, Decision, Membership, Report
from hadpsgd.decentralized.network.collectives import Group
from hadpsgd.decentralized.network.tcp import TcpTransport
from hadpsgd.decentralized.network.transport import Arrival, UnsettledError
from hadpsgd.decentralized.strategies.exchange import PeerExchange
from hadpsgd.decentralized.topology.mixing import MixingSchedule

GIFT = 1 << 62
"""Rounds from here on are not mixes: a newcomer gets its weights."""
IDLE_SECONDS = 3.0
"""After so long without a round partners that cannot be reached are taken for dead."""


class ElasticExchange(PeerExchange):
    """A `PeerExchange` among learners that may die and come; super-learners of one.

    Args:
        base: the schedule on all nodes.
        membership: who takes part.
        transport: as for `PeerExchange`; interrupted by changes of the membership.
    """

    def __init__(
        self,
        learner: Learner,
        base: MixingSchedule,
        transport: TcpTransport,
        coordination: Coordination,
        place: Place,
        membership: Membership,
    ) -> None:
        super().__init__(learner, base, transport, coordination, place, Group(None))
        self.base = base
        self.links = transport
        self.membership = membership
        self._decision: Decision | None = None
        self._active = time.monotonic()
        """When the last round ended."""
        transport.interrupted = membership.changing

    @property
    @override
    def living(self) -> tuple[int, Sequence[int]]:
        """Of the membership."""
        return self.membership.view

    @override
    def run(self, round_: int) -> None:
        """As usual; a round that is broken off counts with those whose reports say so."""
        try:
            super().run(round_)
        except UnsettledError as error:
            report = self._report(round_, exchanging=True, holds=error.arrived)
            self._decision = self.membership.change(report, error.lost)
            settled = self._decision.settled(self.place.node)
            self._take({j: error.arrived[j] for j in settled}, round_)

    @override
    def apply(self) -> None:
        """Mix; then go over to the new membership, if there is one."""
        super().apply()
        self._active = time.monotonic()
        if self._decision is not None:
            decision, self._decision = self._decision, None
            self._go_over(decision)

    @override
    def between_rounds(self) -> None:
        """Take part in a change that somebody proposed, or propose one: a partner is gone."""
        lost = self._lost_while_idle()
        if lost or self.membership.changing():
            report = self._report(self.learner.rounds, exchanging=False, holds={})
            self._go_over(self.membership.change(report, lost))

    def _lost_while_idle(self) -> set[int]:
        """Who has finished starts no rounds: let partners reach it, and see whether they live.

        Whoever has come to the end of the run closes its connections as the dead do, but does not
        leave others waiting.
        """
        idle = time.monotonic() - self._active
        round_ = self.learner.rounds
        if idle < LOOK_SECONDS or self.coordination.pauses(round_):
            return set()
        lost, node = self.links.ended(), self.place.node
        # others may be rounds ahead: whoever it is that waits, the higher rank connects
        lower = [j for j in living(self.schedule) if j < node]
        for j in {*lower, *self.schedule.round(round_).receives(node)}:
            try:
                self.links.reach(j)
            except OSError:
                lost.add(j)
        return lost if idle > IDLE_SECONDS else set()

    def join(self, *, seconds: float, steps: int, version: int) -> None:
        """As a newcomer: get in, take a neighbour's weights, be where the others are.

        Args:
            seconds: how long to wait for an answer.
            steps: gradients that this learner's former self applied.
            version: its last version.
        """
        deadline = time.monotonic() + seconds
        while True:
            decision = self.membership.join(deadline - time.monotonic())
            source = decision.sources[self.place.node]
            self.links.reset(decision.epoch)
            with contextlib.suppress(UnsettledError):  # the source died, or another change came
                gift = self.links.exchange(GIFT + decision.epoch, [source], [], Note())[source]
                break
        self.learner.restore(steps=steps, rounds=decision.round, version=version, read=version)
        self.learner.join(Join(source=source, version=gift.note.version), self._on_device(gift))
        self._follow(decision)

    def leave(self) -> None:
        """Before the connections are closed: if this is the end, others are told so."""
        if self.coordination.stops(self.learner.rounds):
            with contextlib.suppress(dist.DistError):  # its host may have gone
                self.membership.end(self._report(self.learner.rounds, exchanging=False, holds={}))

    def _go_over(self, decision: Decision) -> None:
        """The new membership begins, for this node, with the decision's round."""
        self.links.reset(decision.epoch)
        for newcomer, source in sorted(decision.sources.items()):
            if source == self.place.node:
                self._give(newcomer, decision.epoch)
        self.learner.skip_to(decision.round)
        self._follow(decision)

    def _give(self, newcomer: int, epoch: int) -> None:
        """This learner's weights to a newcomer; if that dies first, the next round will tell."""
        self.snapshot()
        try:
            self.links.exchange(GIFT + epoch, [], [newcomer], self.note)
        except UnsettledError:  # the rest must not be sent from a buffer that is used again
            self.links.drop(newcomer)

    def _follow(self, decision: Decision) -> None:
        self._active = time.monotonic()
        reports = decision.reports.values()
        self.schedule = self.base.over(decision.alive)
        self.coordination.begin_anew(
            self.schedule,
            decision.round,
            pause=any(report.pause for report in reports),
            stop=any(report.stop for report in reports),
            finished=decision.finished,
        )

    def _report(self, round_: int, *, exchanging: bool, holds: Mapping[int, Arrival]) -> Report:
        pause, stop, finished = self.coordination.state()
        return Report(
            round=round_,
            exchanging=exchanging,
            holds=tuple(sorted(holds)),
            pause=pause,
            stop=stop,
            finished=finished,
        )
