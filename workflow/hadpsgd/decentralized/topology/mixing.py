"""What a round of mixing is, and what a schedule of rounds is; see `schedules` for the real ones.

A `Round` is one mixing matrix T of W[k+1] = W[k] T - a g (arXiv 2002.01119, Eq. 2; the columns of
W are the learners' weights), kept sparse: for each learner, the partners whose weights it takes.
A `MixingSchedule` lists the rounds; a subclass says only who exchanges with whom.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hadpsgd.errors import UserError

Takes = Mapping[int, float]
"""Partner -> weight with which a learner takes the partner's weights; itself included."""


@dataclass(frozen=True)
class Round:
    """One round of mixing: learner i's new weights are sum_j takes[i][j] * (weights of j).

    A learner that sits out (idle or dead) takes itself with weight 1.
    """

    takes: tuple[Takes, ...]

    @property
    def learners(self) -> int:
        """Number of learners L, the idle and the dead included."""
        return len(self.takes)

    def partners(self, learner: int) -> Takes:
        """Whose weights `learner` takes, and how much of each; itself included, sum 1."""
        return self.takes[learner]

    def receives(self, learner: int) -> tuple[int, ...]:
        """From whom `learner` receives weights, without itself."""
        return tuple(j for j in self.takes[learner] if j != learner)

    def sends(self, learner: int) -> tuple[int, ...]:
        """To whom `learner` sends its weights, without itself."""
        return self._sends[learner]

    def order(self, learner: int) -> tuple[int, ...]:
        """Partners of `learner` in an order in which blocking exchanges, one by one, never wait
        in a cycle. It colours the pairs so that a colour is a matching; symmetric rounds only.

        Raises:
            ValueError: the round is directed.
        """
        return self._order[learner]

    def matrix(self) -> np.ndarray:
        """T, float64 [L, L]: T[j, i] is the weight with which i takes j's weights."""
        matrix = np.zeros((self.learners, self.learners))
        for i, takes in enumerate(self.takes):
            for j, weight in takes.items():
                matrix[j, i] = weight
        return matrix

    @cached_property
    def symmetric(self) -> bool:
        """Whether j takes as much of i as i takes of j, for every pair."""
        return all(
            self.takes[j].get(i) == weight
            for i, takes in enumerate(self.takes)
            for j, weight in takes.items()
        )

    def without(self, dead: Collection[int]) -> Round:
        """The round among the survivors, its matrix doubly stochastic on them and on the whole.

        Symmetric round: what a survivor would have taken of a dead partner it takes of itself,
        so each survivor decides alone and symmetry stays. Directed round: that would favour some
        learners over others (columns would not sum to 1), so those who would have sent to a dead
        learner send to those who would have received from it (stochastic complement); all
        survivors must know who is dead.
        """
        takes = [dict(row) for row in self.takes]
        for d in sorted(set(dead)):
            through = {i: row.pop(d) for i, row in enumerate(takes) if i != d and d in row}
            lost = {j: weight for j, weight in takes[d].items() if j != d}
            for i, weight in through.items():
                if self.symmetric:
                    takes[i][i] = takes[i].get(i, 0.0) + weight
                    continue
                for j, share in lost.items():
                    takes[i][j] = takes[i].get(j, 0.0) + weight * share / sum(lost.values())
            takes[d] = {d: 1.0}
        return Round(tuple(takes))

    @cached_property
    def _sends(self) -> tuple[tuple[int, ...], ...]:
        sends: list[list[int]] = [[] for _ in self.takes]
        for i, takes in enumerate(self.takes):
            for j in takes:
                if j != i:
                    sends[j].append(i)
        return tuple(map(tuple, sends))

    @cached_property
    def _order(self) -> tuple[tuple[int, ...], ...]:
        if not self.symmetric:
            raise ValueError("a directed round has no order of pairwise exchanges")
        colours: list[dict[int, int]] = [{} for _ in self.takes]  # learner: colour -> partner
        used = [0] * self.learners  # learner: its colours as bits
        for i, takes in enumerate(self.takes):
            for j in sorted(takes):
                if j > i:
                    free = ~(used[i] | used[j])
                    lowest = free & -free
                    used[i] |= lowest
                    used[j] |= lowest
                    colours[i][lowest], colours[j][lowest] = j, i
        return tuple(tuple(row[colour] for colour in sorted(row)) for row in colours)


class MixingSchedule(ABC):
    """Rounds for `learners` learners; equal arguments give equal rounds in every process."""

    name: str
    summary: str
    """One line for tables and help."""
    symmetric: bool = True
    """Whether all rounds are symmetric; directed ones suit synchronous strategies only."""
    free: bool = False
    """Whether asynchronous learners draw their partners instead of following rounds."""

    def __init__(self, *, learners: int, seed: int = 0) -> None:
        if learners < 1:
            raise UserError(f"a mixing schedule needs learners, not {learners}")
        if seed < 0:
            raise UserError(f"the seed of a mixing schedule is 0 or more, not {seed}")
        self.learners = learners
        self.seed = seed
        self._periodic: dict[int, Round] = {}

    @property
    def period(self) -> int | None:
        """Rounds after which the schedule repeats; None if it is random and never does."""
        return 1

    @abstractmethod
    def exchanges(self, k: int) -> Iterable[tuple[int, Takes]]:
        """(learner, whose weights it takes) for each learner that mixes in round `k`.

        Called with 0 <= k, below the period if there is one. Learners left out sit idle.
        """

    def round(self, k: int) -> Round:
        """Round number `k`, counted from 0.

        Raises:
            ValueError: `k` is negative.
        """
        if k < 0:
            raise ValueError(f"rounds are counted from 0, not {k}")
        if self.period is None:
            return self._build(k)
        place = k % self.period
        if place not in self._periodic:
            self._periodic[place] = self._build(place)
        return self._periodic[place]

    def over(self, alive: Collection[int]) -> MixingSchedule:
        """The same kind of schedule among the learners in `alive` alone: a ring closes again.

        Ranks stay as they are; the others sit out. `over` always starts from the full set, so a
        learner that comes back is one more in `alive`.

        Raises:
            UserError: nobody is alive, or a rank does not exist.
        """
        return Over(self, alive)

    def _build(self, k: int) -> Round:
        takes: list[Takes] = [{i: 1.0} for i in range(self.learners)]
        if self.learners > 1:
            for learner, partners in self.exchanges(k):
                takes[learner] = partners
        return Round(tuple(takes))


class Over(MixingSchedule):
    """A schedule built anew on the living learners, in terms of the original ranks."""

    def __init__(self, base: MixingSchedule, alive: Collection[int]) -> None:
        super().__init__(learners=base.learners, seed=base.seed)
        self.alive = tuple(sorted(set(alive)))
        if not self.alive:
            raise UserError("no learner is alive")
        if self.alive[0] < 0 or self.alive[-1] >= base.learners:
            raise UserError(f"learners are 0 to {base.learners - 1}, not {self.alive}")
        self.base = base
        self.inner = type(base)(learners=len(self.alive), seed=base.seed)
        self.name, self.summary, self.symmetric = base.name, base.summary, base.symmetric
        self.free = base.free

    @property
    def period(self) -> int | None:
        """Period of the schedule on the living."""
        return self.inner.period

    def exchanges(self, k: int) -> Iterator[tuple[int, Takes]]:
        """The rounds of the smaller schedule, its ranks translated."""
        for i, takes in enumerate(self.inner.round(k).takes):
            yield self.alive[i], {self.alive[j]: weight for j, weight in takes.items()}

    def over(self, alive: Collection[int]) -> MixingSchedule:
        """The original schedule on another set of living learners."""
        return self.base.over(alive)
