"""Exchanges that outlive the death of partners, and let newcomers in (see `membership`)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping

import torch
import torch.distributed as dist
from torch import Tensor
from typing_extensions import override

from hadpsgd.decentralized.core.coordination import Coordination, horizon
from hadpsgd.decentralized.core.events import Join
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.note import Note
from hadpsgd.decentralized.core.place import Place
from hadpsgd.decentralized.elastic.decision import Decision, Newcomer, Report
from hadpsgd.decentralized.elastic.membership import LOOK_SECONDS, Membership
from hadpsgd.decentralized.network.collectives import Group
from hadpsgd.decentralized.network.rounding import Rounding
from hadpsgd.decentralized.network.transport import Arrival, ElasticTransport, UnsettledError
from hadpsgd.decentralized.strategies.peer_exchange import PeerExchange
from hadpsgd.decentralized.topology.mixing import MixingSchedule

GIFT = 1 << 62
"""Rounds from here on are not mixes: a newcomer gets its weights."""
IDLE_SECONDS = 3.0
"""After so long without a round partners that cannot be reached are taken for dead."""
HURRY_SECONDS = 2.0
"""Who waits so long for news to travel through many rounds has the members agree instead."""


class ElasticExchange(PeerExchange):
    """A `PeerExchange` among learners that may die and come (`members` has that of super-learners).

    Args:
        base: the schedule on all nodes.
        membership: who takes part.
        transport: as for `PeerExchange`, as is the rest; interrupted by changes of the membership.
        life: which start of this node's processes this is, for one that joins.
    """

    alone = False
    """Whether the other members of its super-learner are lost, or to come later."""

    def __init__(
        self,
        learner: Learner,
        base: MixingSchedule,
        transport: ElasticTransport,
        coordination: Coordination,
        place: Place,
        membership: Membership,
        *,
        life: int = 1,
        rounding: Rounding | None = None,
        before_sending: Callable[[], object] = lambda: None,
    ) -> None:
        alone = Group(None)
        super().__init__(
            learner,
            base,
            transport,
            coordination,
            place,
            alone,
            rounding,
            before_sending=before_sending,
        )
        self.base = base
        self.links = transport
        self.membership = membership
        self.life = life
        self._decision: Decision | None = None
        self._active = membership.clock.now()
        """When the last round ended."""
        self._hurried: float | None = None
        """Since when news are to travel far."""
        self._may_wait: tuple[int, int, set[int]] = (-1, -1, set())
        """(membership, round, `_who_may_wait` of it)"""
        transport.interrupted = self.must_change

    @property
    @override
    def living(self) -> tuple[int, Mapping[int, int]]:
        """Of the membership."""
        return self.membership.view

    def ways(self, node: int) -> Mapping[int, slice]:
        """Ranks of another node that this one exchanges with, and what of its own part."""
        return {self.place.counterpart(node): slice(None)}

    @property
    @override
    def reduced(self) -> Collection[int]:
        """Of the membership."""
        return self.membership.reduced

    @override
    def run(self, round_: int) -> None:
        """As usual; a round that is broken off counts with those whose reports say so."""
        try:
            super().run(round_)
        except UnsettledError as error:
            report = self._report(round_, exchanging=True, holds=error.arrived)
            self._decision = self.membership.change(report, error.lost)
            settled = self._decision.settled(self.place.rank)
            self._take({j: error.arrived[j] for j in settled}, round_)

    @override
    def apply(self) -> None:
        """Mix; then go over to the new membership, if there is one."""
        super().apply()
        self._active = self.membership.clock.now()
        if self._decision is not None:
            decision, self._decision = self._decision, None
            self._go_over(decision)

    @override
    def between_rounds(self) -> None:
        """Take part in a change that somebody proposed, or propose one: a partner is gone."""
        lost = self._lost_while_idle(self.learner.rounds)
        if lost or self.must_change():
            report = self._report(self.learner.rounds, exchanging=False, holds={})
            self._go_over(self.membership.change(report, lost))

    def must_change(self) -> bool:
        """Whether there is a change to take part in: somebody proposed it, or this node does.

        It brings pauses, the end and who has finished to everybody at once, however many there are.
        """
        round_ = self.learner.rounds
        if self.coordination.pauses(round_) or not self.coordination.distant(round_):
            self._hurried = None
        elif self._hurried is None:
            self._hurried = self.membership.clock.now()
        elif self.membership.clock.now() > self._hurried + HURRY_SECONDS:
            return True
        return self.membership.changing()

    def _lost_while_idle(self, round_: int) -> set[int]:
        """Who has finished starts no rounds: let partners reach it, and see whether they live.

        Whoever has come to the end of the run closes its connections as the dead do, but does not
        leave others waiting.
        """
        idle = self.membership.clock.now() - self._active
        if idle < LOOK_SECONDS or self.coordination.pauses(round_):
            return set()
        lost, now = self.links.ended(), self.schedule.round(round_).receives(self.place.node)
        partners = {*self._who_may_wait(round_), *now}
        for rank in {*self.colleagues, *(rank for j in partners for rank in self.ways(j))}:
            try:
                self.links.reach(rank)
            except OSError:
                lost.add(rank)
        return lost if idle > IDLE_SECONDS else set()

    def _who_may_wait(self, round_: int) -> set[int]:
        """Lower nodes that may wait for this one, which connects to them, in a later round.

        How far others get without this node's next round is how far its news would travel: where
        they would be known to everybody, nobody gets without it.
        """
        if self._may_wait[:2] != (self.membership.epoch, round_):
            node = self.place.node
            end = horizon(self.schedule, source=node, first=round_)
            partners = {
                j for r in range(round_, end + 1) for j in self.schedule.round(r).sends(node)
            }
            lower = {j for j in partners if j < node}
            self._may_wait = self.membership.epoch, round_, lower
        return self._may_wait[2]

    def join(self, *, seconds: float, steps: int, version: int) -> None:
        """As a newcomer: get in, take a neighbour's weights, be where the others are.

        Args:
            seconds: how long to wait for an answer.
            steps: gradients that this learner's former self applied.
            version: its last version.
        """
        deadline = self.membership.clock.now() + seconds
        told = Newcomer(life=self.life, steps=steps, version=version, alone=self.alone)
        weights = torch.empty_like(self.learner.weights, device="cpu")
        while True:
            decision = self.membership.join(deadline - self.membership.clock.now(), told)
            source = decision.sources[self.place.node]
            giver = self._giver(decision, source)
            self.links.reset(decision.epoch)
            came: dict[int, Arrival] = {}
            with contextlib.suppress(UnsettledError):  # the source died, or another change came
                came = self.links.exchange(
                    GIFT + decision.epoch, [giver], [], Note(), into=[weights]
                )
            if self.membership.all_have_it(
                bool(came), seconds=deadline - self.membership.clock.now()
            ):
                break
        if self.place.member:  # the first member alone has read the record
            told = decision.newcomers[self.place.node]
        self.learner.restore(
            steps=told.steps, rounds=decision.round, version=told.version, read=told.version
        )
        self.learner.join(Join(source=source, version=came[giver].note.version), weights)
        self._follow(decision)

    def leave(self) -> None:
        """Before the connections are closed: if this is the end, others are told so."""
        if self.coordination.stops(self.learner.rounds):
            with contextlib.suppress(dist.DistError):  # its host may have gone
                self.membership.end(self._report(self.learner.rounds, exchanging=False, holds={}))

    def _go_over(self, decision: Decision) -> None:
        """The new membership begins, for this node, with the decision's round."""
        self.links.reset(decision.epoch)
        gift = self._gift(decision)
        self.learner.skip_to(decision.round)
        self._follow(decision)
        self._give(decision, gift)

    def _giver(self, decision: Decision, source: int) -> int:  # noqa: ARG002
        """As a newcomer: the rank of the source that gives its weights to this one."""
        return min(self.ways(source))

    def _receivers(self, decision: Decision, newcomer: int) -> Collection[int]:  # noqa: ARG002
        """Ranks of a newcomer to whom this rank gives its weights."""
        return self.ways(newcomer)

    def _newcomers(self, decision: Decision) -> list[int]:
        """To whom this node gives its weights."""
        node = self.place.node
        return [new for new, source in sorted(decision.sources.items()) if source == node]

    def _gift(self, decision: Decision) -> tuple[Tensor, Note] | None:
        """A copy of this learner's weights for newcomers, and what is to be said of it."""
        if not self._newcomers(decision):
            return None
        weights = torch.empty_like(self.learner.weights)
        version = self.learner.snapshot(weights)
        note = self.coordination.note(version=version, steps=self.learner.steps)
        self._before_sending()
        return weights.cpu(), note

    def _give(self, decision: Decision, gift: tuple[Tensor, Note] | None) -> None:
        """The copy to the newcomers; if one dies first, the next round will tell."""
        for newcomer in self._newcomers(decision) if gift is not None else []:
            assert gift is not None
            weights, note = gift
            for rank in self._receivers(decision, newcomer):
                try:
                    self.links.exchange(GIFT + decision.epoch, [], [rank], note, payload=weights)
                except UnsettledError:  # the rest of it is of no use any more
                    self.links.drop(rank)

    def _follow(self, decision: Decision) -> None:
        self._active = self.membership.clock.now()
        self._hurried = None
        reports = decision.reports.values()
        self.schedule = self.base.over(decision.alive)
        self.coordination.begin_anew(
            self.schedule,
            decision.round,
            pause=any(report.pause for report in reports),
            stop=any(report.stop for report in reports),
            finished=decision.finished,
            # a round's mix has its place before the same update at all members: so has the pause
            first=int(self.place.size > 1),
        )

    def _report(
        self, round_: int, *, exchanging: bool, holds: Mapping[int, Arrival], steps: int = 0
    ) -> Report:
        pause, stop, finished = self.coordination.state()
        return Report(
            round=round_,
            exchanging=exchanging,
            holds=tuple(sorted(holds)),
            pause=pause,
            stop=stop,
            finished=finished,
            steps=steps,
        )
