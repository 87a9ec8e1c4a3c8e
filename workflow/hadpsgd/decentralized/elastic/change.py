"""One change of the membership: who is waited for, who decides, and what (see `membership`).

All ranks ask the store, so nobody asks about everybody: who waits asks for the decision, and once
in a while whether the rank that writes it lives; that one alone looks after the others, and gives
signs of life meanwhile. However many there are, each asks a few times a second.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from hadpsgd.decentralized.core.place import ranks_of
from hadpsgd.decentralized.elastic.decision import Decision, Newcomer
from hadpsgd.decentralized.elastic.notices import Notices

PATIENCE_SECONDS = 1.0
"""A rank that is waited for so long (for its report, or its decision) is asked whether it lives."""
GRACE_SECONDS = 2.0
"""A rank that listens, and that a partner has lost, has so long to report."""


class Change:
    """One rank's view, which has reported.

    Args:
        notices: what all tell each other.
        before: the decision by which all live until this change.
        rank: this one.
        lives: whether another rank listens; asked when it does not report.
        nodes: those that take part if all live.
        seconds: who does not report for so long is out, even if it listens.
        reduces: whether a node goes on by its first rank if others of its ranks die.
    """

    def __init__(
        self,
        notices: Notices,
        before: Decision,
        rank: int,
        lives: Callable[[int], bool],
        *,
        nodes: int,
        seconds: float,
        reduces: bool,
    ) -> None:
        self.notices = notices
        self.before = before
        self.rank = rank
        self.lives = lives
        self.nodes = nodes
        self.seconds = seconds
        self.reduces = reduces
        self.clock = notices.clock

    def decided(self) -> Decision:
        """Wait for the decision, or make it if it is this rank's turn."""
        while not self.notices.there("decision"):
            decider = self._decider()
            if decider == self.rank:
                self._collect()
            else:
                self._await(decider)
        return self.notices.decision()

    def _await(self, decider: int | None) -> None:
        """Until there is a decision, or another rank's turn to make it."""
        begin, signs = self.clock.now(), 0
        while self._decider() == decider:
            if self.notices.comes("decision", self.clock.now() + PATIENCE_SECONDS):
                return
            if decider is None:
                continue
            given = self.notices.add(f"signs/{decider}", 0)
            now = self.clock.now()
            if given != signs:  # it waits for others itself
                begin, signs = now, given
            self._ask(decider, silent=now - begin)

    def _collect(self) -> None:
        """Wait for the reports of all who live, part with those who do not, and decide."""
        begin = self.clock.now()
        look = begin + PATIENCE_SECONDS
        missing: Sequence[int] = ()
        while not self.notices.there("decision"):
            if not missing:
                living = list(self._living())
                missing = [rank for rank in living if not self.notices.there(f"report/{rank}")]
                if not missing:
                    self.notices.decide(self._decision(living))
                    return
            if not all(self._settled(rank, look) for rank in missing):
                for rank in missing:
                    if not self._settled(rank):
                        self.notices.add(f"signs/{self.rank}", 1)
                        self._ask(rank, silent=self.clock.now() - begin)
                look = self.clock.now() + PATIENCE_SECONDS
                if self._decider() != self.rank:
                    return  # the others have given this rank up
            missing = [rank for rank in missing if not self._settled(rank)]

    def _settled(self, rank: int, deadline: float = 0.0) -> bool:
        """Whether it need not be waited for: it reports, has ended or is dead; waits until then."""
        if self.notices.ended(rank) or self._dead(rank):
            return True
        return self.notices.comes(f"report/{rank}", deadline)

    def _ask(self, rank: int, *, silent: float) -> None:
        """Whether it lives, though it has been silent for so long; if not, all are told so."""
        patience = GRACE_SECONDS if self.notices.there(f"lost/{rank}") else self.seconds
        if silent > min(patience, self.seconds) or not self.lives(rank):
            self.notices.put(f"dead/{rank}")

    def _ranks(self, nodes: Iterable[int]) -> list[int]:
        """Those that take part until this change."""
        size, reduced = self.before.size, self.before.reduced
        return [rank for node in nodes for rank in ranks_of(node, size=size, reduced=reduced)]

    def _living(self) -> Iterator[int]:
        """Ranks of nodes none of whose ranks is dead, without those that have come to the end.

        Of a node that is reduced, or is to be, the first rank.
        """
        for node in self.before.alive:
            first = node * self.before.size
            going_on = [rank for rank in self._ranks([node]) if not self.notices.ended(rank)]
            if not any(map(self._dead, going_on)):
                yield from going_on
            elif self.reduces and going_on[0] == first and not self._dead(first):
                yield first

    def _decider(self) -> int | None:
        """The lowest living rank, found without a look at the others."""
        return next(self._living(), None)

    def _dead(self, rank: int) -> bool:
        """Whether the others go on without it."""
        if self.notices.there(f"dead/{rank}"):
            return True
        return self.notices.there(f"gone/{rank}") and not self.notices.there(f"report/{rank}")

    def _decision(self, living: list[int]) -> Decision:
        """When all of them have reported."""
        notices, before = self.notices, self.before
        reports = {rank: notices.report(rank) for rank in living}
        for rank in filter(notices.ended, self._ranks(before.alive)):
            reports[rank] = notices.last_word(rank)
        going_on = sorted({rank // before.size for rank in living})
        restored = [n for n in going_on if n in before.reduced and notices.there(f"whole/{n}")]
        reduced = [
            n
            for n in going_on
            if n not in restored
            and not reports.keys() >= set(ranks_of(n, size=before.size, reduced=()))
        ]
        newcomers = {
            n: Newcomer(**json.loads(notices.get(f"join/{n}")))
            for n in range(self.nodes)
            if n not in going_on and notices.there(f"join/{n}")
        }
        return Decision(
            notices.epoch,
            tuple(sorted([*going_on, *newcomers])),
            max(report.round + report.exchanging for report in reports.values()),
            {n: _nearest(going_on, n, self.nodes) for n in newcomers},
            reports,
            newcomers,
            before.size,
            tuple(sorted([*reduced, *(n for n, told in newcomers.items() if told.alone)])),
            tuple(n for n in reduced if n not in before.reduced),
            tuple(restored),
            {n: number for n, number in before.generations.items() if n in going_on}
            | dict.fromkeys(newcomers, notices.epoch),
        )


def _nearest(living: Collection[int], newcomer: int, nodes: int) -> int:
    """The living node that comes next in the ring."""
    return min(living, key=lambda node: (node - newcomer) % nodes)
