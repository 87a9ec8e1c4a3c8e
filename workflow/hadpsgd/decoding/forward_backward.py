"""Forward and backward scores over a lattice: best paths (tropical) or sums of paths (log)."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hadpsgd.decoding.lattice import Lattice, Scaling, arc_costs, final_costs

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Groups:
    """Arcs level by level, those with the same end (or beginning) side by side.

    order: arcs. begins: where each group starts in it. states: the state of each group.
    levels: first group of every level, and one past all.
    """

    order: NDArray[np.int64]
    begins: NDArray[np.int64]
    states: NDArray[np.int64]
    levels: list[int]


@dataclass(frozen=True)
class ForwardBackward:
    """Scores of a lattice under a scaling.

    best: True for costs of best paths, False for negated log sums over paths.
    """

    lattice: Lattice
    scaling: Scaling
    best: bool

    @cached_property
    def arcs(self) -> Floats:
        """float64 [arcs]: scaled costs."""
        return arc_costs(self.lattice, [self.scaling])[0]

    @cached_property
    def final(self) -> Floats:
        """float64 [states]: scaled cost of ending; inf where not final."""
        return final_costs(self.lattice, [self.scaling])[0]

    def _groups(self, states: NDArray[np.int64]) -> _Groups:
        levels = self.lattice.levels[states]
        order = np.lexsort((states, levels))
        states = states[order]
        begins = np.flatnonzero(np.diff(states, prepend=-1))
        level_of = self.lattice.levels[states[begins]]
        bounds = np.flatnonzero(np.diff(level_of, prepend=-1, append=level_of[-1:] + 1))
        return _Groups(order, begins, states[begins], bounds.tolist())

    def _sweep(
        self, groups: _Groups, other: NDArray[np.integer], scores: Floats, down: bool
    ) -> Floats:
        """Fill scores of the groups' states from those at the other end of their arcs."""
        reduce = np.minimum if self.best else np.logaddexp
        sign = 1.0 if self.best else -1.0
        costs = sign * self.arcs[groups.order]
        other = other[groups.order]
        scores = sign * scores
        spans = list(pairwise(groups.levels))
        for low, high in reversed(spans) if down else spans:
            begins = groups.begins[low:high]
            end = groups.begins[high] if high < len(groups.begins) else len(other)
            arcs = slice(begins[0], end)
            found = reduce.reduceat(scores[other[arcs]] + costs[arcs], begins - begins[0])
            states = groups.states[low:high]
            scores[states] = reduce(scores[states], found)
        return sign * scores

    @cached_property
    def forward(self) -> Floats:
        """float64 [states]: from the start to each state."""
        scores = np.full(self.lattice.num_states, np.inf)
        scores[0] = 0.0
        if not len(self.arcs):
            return scores
        return self._sweep(
            self._groups(self.lattice.arcs["next"].astype(np.int64)),
            self.lattice.sources,
            scores,
            down=False,
        )

    @cached_property
    def backward(self) -> Floats:
        """float64 [states]: from each state to the end, ending included."""
        if not len(self.arcs):
            return self.final.copy()
        return self._sweep(
            self._groups(self.lattice.sources),
            self.lattice.arcs["next"].astype(np.int64),
            self.final.copy(),
            down=True,
        )

    @property
    def total(self) -> float:
        """Of the whole lattice: cost of the best path, or negated log sum of all."""
        return float(self.backward[0])

    @property
    def through(self) -> Floats:
        """float64 [arcs]: of the paths that pass each arc."""
        ahead = self.backward[self.lattice.arcs["next"]]
        return self.forward[self.lattice.sources] + self.arcs + ahead


def arc_posteriors(lattice: Lattice, scaling: Scaling) -> Floats:
    """float64 [arcs]: probability that a path, drawn by its scaled cost, passes each arc."""
    sums = ForwardBackward(lattice, scaling, best=False)
    return np.exp(sums.total - sums.through)


def frames_before(lattice: Lattice) -> NDArray[np.int64]:
    """int64 [states]: frames consumed before each state."""
    if not lattice.num_states:
        return np.zeros(0, np.int64)
    frames = array("i", bytes(4 * lattice.num_states))
    taken = array("i", lattice.frames.astype(np.int32).tobytes())
    for (source, target), count in zip(lattice.ends(), taken, strict=True):
        frames[target] = frames[source] + count
    return np.frombuffer(frames, np.int32).astype(np.int64)
