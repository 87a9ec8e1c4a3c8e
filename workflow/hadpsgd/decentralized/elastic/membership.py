"""Who takes part in mixing, agreed on when a learner dies or comes (back).

A membership lasts from one *change* to the next; the store that all processes share arbitrates.
Every rank takes part in a change; those who are members of it are nodes (super-learners). It goes
like this, in the communication threads; gradients go on meanwhile:

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

The store must outlive the learners: torchrun's agent or `hadpsgd launch` hosts it. All of them ask
it, so nobody asks about everybody: who waits asks for the decision, and once in a while whether the
rank that writes it lives; that one alone looks after the others, and gives signs of life meanwhile.
However many there are, each asks a few times a second.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict

from hadpsgd.decentralized.core.engine import ExcludedError
from hadpsgd.decentralized.core.place import ranks_of
from hadpsgd.decentralized.core.stores import Store
from hadpsgd.decentralized.core.threads import Clock, RealClock
from hadpsgd.decentralized.elastic.decision import Decision, Newcomer, Report, report_of
from hadpsgd.decentralized.topology.mixing import MixingSchedule

LOOK_SECONDS = 0.25
PATIENCE_SECONDS = 1.0
"""A rank that is waited for so long (for its report, or its decision) is asked whether it lives."""
GRACE_SECONDS = 2.0
"""A rank that listens, and that a partner has lost, has so long to report."""
FIRST_POLL_SECONDS, LAST_POLL_SECONDS = 0.005, 0.05
"""Who waits for a word in the store asks again after so long, each time after twice as long."""

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
        self.reduced: Collection[int] = ()
        """Nodes of which the first rank alone takes part."""
        self.epoch = 0
        self.alive = tuple(range(base.learners))
        self.view: tuple[int, Mapping[int, int]] = (0, dict.fromkeys(self.alive, 0))
        """Number of the membership, and its nodes with that of the one with which the processes of
        each came, for another thread: they belong together."""
        self._looked = self.clock.now() - LOOK_SECONDS

    def changing(self) -> bool:
        """Whether a change is proposed; looks into the store now and then only."""
        now = self.clock.now()
        if now - self._looked < LOOK_SECONDS:
            return False
        self._looked = now
        return self._there("proposed")

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
        for rank in lost:
            self._put(f"lost/{rank}")
            if not self.lives(rank):
                self._put(f"gone/{rank}")
        for rank in dead:
            self._put(f"dead/{rank}")
        if whole:
            self._put(f"whole/{self.node}")
        self._put(f"report/{self.rank}", json.dumps(asdict(report)))
        self._put("proposed")
        decision = self._decided()
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
        while first and self._there("decision"):
            self.adopt(self._read())
        while self.clock.now() < deadline:
            if first:
                # its former selves, if nobody has noticed yet
                for rank in self._ranks([self.node]):
                    self._put(f"dead/{rank}")
                self._put(f"join/{self.node}", json.dumps(asdict(newcomer)))
                self._put("proposed")
            for _ in self._polls(deadline):
                if self._there("decision"):
                    break
                if self.store.check([OVER]):
                    raise TooLateError(f"the others ended before learner {self.rank} joined them")
            if self._there("decision"):
                decision = self._read()
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
        keys = {r: f"members/{self.epoch}/got/{r}" for r in self._ranks([self.node])}
        self.store.set(keys[self.rank], "yes" if mine else "no")
        for _ in self._polls(self.clock.now() + seconds):
            if self.store.check(list(keys.values())):
                return all(self.store.get(key) == b"yes" for key in keys.values())
        raise TimeoutError(f"other ranks of super-learner {self.node} fell silent")

    def end(self, report: Report) -> None:
        """This rank's last word: all its rounds are done. Newcomers come too late."""
        self.store.set(_last_word(self.rank), json.dumps(asdict(report)))
        self.store.set(OVER, "")

    def adopt(self, decision: Decision) -> None:
        """Live by it."""
        self.epoch, self.alive = decision.epoch, decision.alive
        self.view = self.epoch, {n: decision.generations.get(n, 0) for n in self.alive}
        self.reduced = decision.reduced
        self._looked = self.clock.now()

    def enter(self, epoch: int) -> Decision:
        """Live by the decision that began a membership: as a rank of a node that is in it."""
        self.epoch = epoch - 1
        decision = self._read()
        self.adopt(decision)
        return decision

    def _lets_in(self, decision: Decision, life: int) -> bool:
        """Whether this node, in this life, is one of its newcomers."""
        told = decision.newcomers.get(self.node)
        return told is not None and told.life == life

    def _decided(self) -> Decision:
        """Wait for the decision, or make it if it is this rank's turn."""
        while not self._there("decision"):
            decider = self._decider()
            if decider == self.rank:
                self._collect()
            else:
                self._await(decider)
        return self._read()

    def _await(self, decider: int | None) -> None:
        """Until there is a decision, or another rank's turn to make it."""
        begin, signs = self.clock.now(), 0
        while self._decider() == decider:
            if self._comes("decision", self.clock.now() + PATIENCE_SECONDS):
                return
            if decider is None:
                continue
            given = self.store.add(self._key(f"signs/{decider}"), 0)
            now = self.clock.now()
            if given != signs:  # it waits for others itself
                begin, signs = now, given
            self._ask(decider, silent=now - begin)

    def _collect(self) -> None:
        """Wait for the reports of all who live, part with those who do not, and decide."""
        begin = self.clock.now()
        look = begin + PATIENCE_SECONDS
        missing: Sequence[int] = ()
        while not self._there("decision"):
            if not missing:
                living = list(self._living())
                missing = [rank for rank in living if not self._there(f"report/{rank}")]
                if not missing:
                    self._decide(living)
                    return
            if not all(self._settled(rank, look) for rank in missing):
                for rank in missing:
                    if not self._settled(rank):
                        self.store.add(self._key(f"signs/{self.rank}"), 1)
                        self._ask(rank, silent=self.clock.now() - begin)
                look = self.clock.now() + PATIENCE_SECONDS
                if self._decider() != self.rank:
                    return  # the others have given this rank up
            missing = [rank for rank in missing if not self._settled(rank)]

    def _settled(self, rank: int, deadline: float = 0.0) -> bool:
        """Whether it need not be waited for: it reports, has ended or is dead; waits until then."""
        if self._ended(rank) or self._dead(rank):
            return True
        return self._comes(f"report/{rank}", deadline)

    def _ask(self, rank: int, *, silent: float) -> None:
        """Whether it lives, though it has been silent for so long; if not, all are told so."""
        patience = GRACE_SECONDS if self._there(f"lost/{rank}") else self.seconds
        if silent > min(patience, self.seconds) or not self.lives(rank):
            self._put(f"dead/{rank}")

    def _comes(self, name: str, deadline: float) -> bool:
        """Whether there is such a key by then."""
        return any(self._there(name) for _ in self._polls(deadline))

    def _polls(self, deadline: float) -> Iterator[None]:
        """Moments to ask the store, until `deadline`; at least one."""
        pause = FIRST_POLL_SECONDS
        yield
        while (now := self.clock.now()) < deadline:
            self.clock.sleep(min(pause, deadline - now))
            pause = min(2 * pause, LAST_POLL_SECONDS)
            yield

    def _ranks(self, nodes: Iterable[int]) -> list[int]:
        return [
            rank for node in nodes for rank in ranks_of(node, size=self.size, reduced=self.reduced)
        ]

    def _living(self) -> Iterator[int]:
        """Ranks of nodes none of whose ranks is dead, without those that have come to the end.

        Of a node that is reduced, or is to be, the first rank.
        """
        for node in self.alive:
            going_on = [rank for rank in self._ranks([node]) if not self._ended(rank)]
            if not any(map(self._dead, going_on)):
                yield from going_on
            elif self.reduces and going_on[0] == node * self.size and not self._dead(going_on[0]):
                yield going_on[0]

    def _decider(self) -> int | None:
        """The lowest living rank, found without a look at the others."""
        return next(self._living(), None)

    def _dead(self, rank: int) -> bool:
        """Whether the others go on without it."""
        if self._there(f"dead/{rank}"):
            return True
        return self._there(f"gone/{rank}") and not self._there(f"report/{rank}")

    def _ended(self, rank: int) -> bool:
        """Whether it has come to the end of the run."""
        return self.store.check([_last_word(rank)])

    def _decide(self, living: list[int]) -> None:
        reports = {rank: report_of(json.loads(self._get(f"report/{rank}"))) for rank in living}
        for rank in filter(self._ended, self._ranks(self.alive)):
            reports[rank] = report_of(json.loads(self.store.get(_last_word(rank))))
        going_on = sorted({rank // self.size for rank in living})
        nodes = self.base.learners
        restored = [n for n in going_on if n in self.reduced and self._there(f"whole/{n}")]
        reduced = [
            n
            for n in going_on
            if n not in restored
            and not reports.keys() >= set(ranks_of(n, size=self.size, reduced=()))
        ]
        newcomers = {
            n: Newcomer(**json.loads(self._get(f"join/{n}")))
            for n in range(nodes)
            if n not in going_on and self._there(f"join/{n}")
        }
        decision = Decision(
            self.epoch + 1,
            tuple(sorted([*going_on, *newcomers])),
            max(report.round + report.exchanging for report in reports.values()),
            {n: _nearest(going_on, n, nodes) for n in newcomers},
            reports,
            newcomers,
            self.size,
            tuple(sorted([*reduced, *(n for n, told in newcomers.items() if told.alone)])),
            tuple(n for n in reduced if n not in self.reduced),
            tuple(restored),
            {n: number for n, number in self.view[1].items() if number and n in going_on}
            | dict.fromkeys(newcomers, self.epoch + 1),
        )
        self.store.compare_set(self._key("decision"), "", decision.to_json())

    def _read(self) -> Decision:
        return Decision.from_json(self._get("decision"))

    def _key(self, name: str) -> str:
        return f"members/{self.epoch + 1}/{name}"

    def _there(self, name: str) -> bool:
        return self.store.check([self._key(name)])

    def _put(self, name: str, value: str = "yes") -> None:
        self.store.set(self._key(name), value)

    def _get(self, name: str) -> str:
        return self.store.get(self._key(name)).decode()


def _last_word(rank: int) -> str:
    return f"ended/{rank}"


def _nearest(living: Collection[int], newcomer: int, nodes: int) -> int:
    """The living node that comes next in the ring."""
    return min(living, key=lambda node: (node - newcomer) % nodes)
