"""Who takes part in mixing, agreed on when a learner dies or comes (back).

A membership lasts from one *change* to the next; the store that all processes share arbitrates.
Every rank takes part in a change; those who are members of it are nodes (super-learners). It goes
like this (`change`), in the communication threads; gradients go on meanwhile:

1. Who loses a partner, or wants to join, proposes the change. The others look for proposals
   between rounds and while they wait in one.
2. Everybody reports the round it is in and whose snapshots it holds. A rank that a partner lost is
   given up unless it reports: at once if it does not listen, else after a while, since its partner
   may have noticed first that their connection broke. Who is waited for and does not listen any
   more is dead. A super-learner of which a rank is dead leaves as a whole; or, where that is
   wanted, it is *reduced* to its first rank, if that one lives, until new ranks take the places of
   the dead (`reunion`): then that one says that it is whole again.
3. The lowest living rank writes down the decision: the nodes, the round that all go on with,
   and the reports. The first decision counts; if its writer dies before, the next one writes.
4. An exchange of the round that was broken off counts only between two living nodes all of whose
   ranks held their partner's snapshot, so each mix keeps the mean of those who did it.
5. Newcomers get the weights of a neighbour. A super-learner joins as a whole: its first rank asks,
   the others look for the decision that lets this *life* of it in. Or its first rank joins alone: a
   member that takes the place of the first one, which failed (`reunion`).

The store must outlive the learners: torchrun's agent or `hadpsgd launch` hosts it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict

from hadpsgd.decentralized.core.engine import ExcludedError
from hadpsgd.decentralized.core.place import ranks_of
from hadpsgd.decentralized.core.stores import Store
from hadpsgd.decentralized.core.threads import Clock, RealClock
from hadpsgd.decentralized.elastic.change import Change
from hadpsgd.decentralized.elastic.decision import Decision, Newcomer, Report
from hadpsgd.decentralized.elastic.notices import Notices, polls
from hadpsgd.decentralized.topology.mixing import MixingSchedule

LOOK_SECONDS = 0.25
"""Who mixes looks so often whether somebody proposes a change."""
OVER = "over"


class TooLateError(RuntimeError):
    """The others have come to their end."""


class Membership:
    """One rank's view.

    Args:
        store: shared by all.
        base: the schedule on all nodes.
        rank: this one.
        lives: whether another rank listens; asked when it does not report.
        seconds: who does not report for so long is out, even if it listens.
        size: ranks of a node.
        reduces: whether a node goes on by its first rank if others of its ranks die.
        clock: in which all this happens.
    """

    def __init__(
        self,
        store: Store,
        base: MixingSchedule,
        rank: int,
        lives: Callable[[int], bool],
        seconds: float = 300.0,
        *,
        size: int = 1,
        reduces: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.store = store
        self.clock = clock or RealClock()
        self.base = base
        self.rank = rank
        self.node = rank // size
        self.size = size
        self.lives = lives
        self.seconds = seconds
        self.reduces = reduces
        self._decision = Decision(0, tuple(range(base.learners)), 0, size=size)
        """By which all live."""
        self.view: tuple[int, Mapping[int, int]] = (0, dict.fromkeys(self._decision.alive, 0))
        """Number of the membership, and its nodes with that of the one with which the processes of
        each came, for another thread: they belong together."""
        self._looked = self.clock.now() - LOOK_SECONDS

    @property
    def epoch(self) -> int:
        """Number of the membership."""
        return self._decision.epoch

    @property
    def reduced(self) -> Collection[int]:
        """Nodes of which the first rank alone takes part."""
        return self._decision.reduced

    @property
    def _notices(self) -> Notices:
        """Of the change that comes next."""
        return Notices(self.store, self.clock, self.epoch + 1)

    def changing(self) -> bool:
        """Whether a change is proposed; looks into the store now and then only."""
        now = self.clock.now()
        if now - self._looked < LOOK_SECONDS:
            return False
        self._looked = now
        return self._notices.there("proposed")

    def change(
        self,
        report: Report,
        lost: Collection[int] = (),
        *,
        dead: Collection[int] = (),
        whole: bool = False,
    ) -> Decision:
        """Take part in a change, proposing it if need be; blocks until it is decided.

        `lost`: ranks with whom an exchange broke off. `dead`: whether they live or not. `whole`:
        this node, which is reduced, has all its ranks again.

        Raises:
            ExcludedError: the others go on without this node.
        """
        notices = self._notices
        for rank in lost:
            notices.put(f"lost/{rank}")
            if not self.lives(rank):
                notices.put(f"gone/{rank}")
        for rank in dead:
            notices.put(f"dead/{rank}")
        if whole:
            notices.put(f"whole/{self.node}")
        notices.put(f"report/{self.rank}", value=json.dumps(asdict(report)))
        notices.put("proposed")
        decision = Change(
            notices,
            self._decision,
            self.rank,
            self.lives,
            nodes=self.base.learners,
            seconds=self.seconds,
            reduces=self.reduces,
        ).decided()
        if self.rank not in self._taking_part(decision):
            what = f"learner {self.rank}" if self.size == 1 else f"super-learner {self.node}"
            raise ExcludedError(f"the others took {what} for dead and go on without")
        self.adopt(decision)
        return decision

    def _taking_part(self, decision: Decision) -> Collection[int]:
        """Ranks of this node that a decision lets take part."""
        if self.node not in decision.alive:
            return ()
        return ranks_of(self.node, size=self.size, reduced=decision.reduced)

    def join(self, seconds: float, newcomer: Newcomer | None = None) -> Decision:
        """As a newcomer: propose to take this node's place until a decision says so.

        Of a super-learner the first rank proposes; the others wait for what is decided on it.

        Raises:
            TooLateError: the run is over.
            TimeoutError: nobody answered.
        """
        newcomer = newcomer or Newcomer()
        deadline = self.clock.now() + seconds
        first = self.rank == self.node * self.size
        while first and self._notices.there("decision"):
            self.adopt(self._notices.decision())
        while self.clock.now() < deadline:
            notices = self._notices
            if first:
                # its former selves, if nobody has noticed yet
                for rank in self._ranks():
                    notices.put(f"dead/{rank}")
                notices.put(f"join/{self.node}", value=json.dumps(asdict(newcomer)))
                notices.put("proposed")
            for _ in polls(self.clock, deadline):
                if notices.there("decision"):
                    break
                if self.store.check([OVER]):
                    raise TooLateError(f"the others ended before learner {self.rank} joined them")
            if notices.there("decision"):
                decision = notices.decision()
                self.adopt(decision)
                if self._lets_in(decision, newcomer.life):
                    return decision
        raise TimeoutError(f"nobody let learner {self.rank} join within {seconds:g} s")

    def all_have_it(self, mine: bool, *, seconds: float) -> bool:
        """As a newcomer: whether all ranks of this node have got a neighbour's weights.

        Raises:
            TimeoutError: one of them does not say.
        """
        if self.size == 1:
            return mine
        notices = Notices(self.store, self.clock, self.epoch)
        names = [f"got/{rank}" for rank in self._ranks()]
        notices.put(f"got/{self.rank}", value="yes" if mine else "no")
        for _ in polls(self.clock, self.clock.now() + seconds):
            if notices.there(*names):
                return all(notices.get(name) == "yes" for name in names)
        raise TimeoutError(f"other ranks of super-learner {self.node} fell silent")

    def end(self, report: Report) -> None:
        """This rank's last word: all its rounds are done. Newcomers come too late."""
        self._notices.end(self.rank, report)
        self.store.set(OVER, "")

    def adopt(self, decision: Decision) -> None:
        """Live by it."""
        self._decision = decision
        self.view = decision.epoch, {n: decision.generations.get(n, 0) for n in decision.alive}
        self._looked = self.clock.now()

    def enter(self, epoch: int) -> Decision:
        """Live by the decision that began a membership: as a rank of a node that is in it."""
        decision = Notices(self.store, self.clock, epoch).decision()
        self.adopt(decision)
        return decision

    def _lets_in(self, decision: Decision, life: int) -> bool:
        """Whether this node, in this life, is one of its newcomers."""
        told = decision.newcomers.get(self.node)
        return told is not None and told.life == life

    def _ranks(self) -> Collection[int]:
        """Ranks of this node that take part."""
        return ranks_of(self.node, size=self.size, reduced=self.reduced)
