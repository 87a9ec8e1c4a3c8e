"""Merging of similar leaves under a root, bottom up (Kaldi's ClusterBottomUp and its kin)."""

from __future__ import annotations

import numpy as np

from hadpsgd.gmm.context_stats import objective
from hadpsgd.gmm.statistics import Doubles


class Compartment:
    """Leaves that may be merged with one another.

    What a merge costs is the log-likelihood lost by one Gaussian in place of two. Of every leaf the
    cheapest merge with one of those behind it is kept, not the costs of all pairs: 8 GB of 32,000.
    A leaf whose partner is gone or changed keeps that cost: what is left for it costs no less, and
    is looked for when nothing else is cheaper.
    """

    def __init__(self, leaves: list[int], sums: Doubles, floor: float) -> None:
        """sums: [leaves, 1 + 2 dim]."""
        self._leaves, self._sums, self._floor = np.array(leaves), sums.copy(), floor
        self._levels = objective(self._sums, floor)
        self._into = np.arange(len(leaves))
        self._alive = np.ones(len(leaves), np.bool_)
        self._costs = np.full(len(leaves), np.inf)
        self._partners = np.zeros(len(leaves), np.int64)
        self._outdated = np.zeros(len(leaves), np.bool_)
        for place in range(len(leaves)):
            self._find(place)

    @property
    def merged_into(self) -> dict[int, int]:
        """What each leaf is part of."""
        return dict(zip(self._leaves.tolist(), self._leaves[self._into].tolist(), strict=True))

    def _cost(self, one: int, others: np.ndarray) -> Doubles:
        both = objective(self._sums[one] + self._sums[others], self._floor)
        costs: Doubles = self._levels[one] + self._levels[others] - both
        return costs

    def _find(self, place: int) -> None:
        """The cheapest merge of a leaf with one behind it."""
        behind = place + 1 + np.flatnonzero(self._alive[place + 1 :])
        self._costs[place], self._outdated[place] = np.inf, False
        if len(behind):
            costs = self._cost(place, behind)
            best = int(costs.argmin())
            self._costs[place], self._partners[place] = costs[best], behind[best]

    def _first(self) -> int:
        """Of the leaves with the cheapest merge the first."""
        while self._outdated[place := int(self._costs.argmin())]:
            self._find(place)
        return place

    @property
    def cheapest(self) -> float:
        """Cost of the cheapest merge; infinite where none is left."""
        return float(self._costs[self._first()]) if self._costs.size else np.inf

    def merge(self) -> None:
        """Do the cheapest merge."""
        kept = self._first()
        gone = int(self._partners[kept])
        self._sums[kept] += self._sums[gone]
        self._levels[kept] = objective(self._sums[kept], self._floor)
        self._into[self._into == gone] = kept
        self._alive[gone], self._costs[gone], self._outdated[gone] = False, np.inf, False
        lost = (self._partners == kept) | (self._partners == gone)
        self._outdated |= lost & self._alive & np.isfinite(self._costs)
        self._find(kept)
        before = np.flatnonzero(self._alive[:kept])
        costs, known = self._cost(kept, before), self._costs[before]
        first = ~self._outdated[before] & (kept < self._partners[before])
        less = (costs < known) | ((costs == known) & first)
        better = before[less]
        self._costs[better], self._partners[better] = costs[less], kept
        self._outdated[better] = False


def merge_below(compartments: list[Compartment], threshold: float) -> int:
    """All merges that cost at most `threshold`; returns how many."""
    merges = 0
    for compartment in compartments:
        while compartment.cheapest <= threshold and np.isfinite(compartment.cheapest):
            compartment.merge()
            merges += 1
    return merges


def merge_number(compartments: list[Compartment], number: int) -> int:
    """The `number` cheapest merges, wherever they are; returns how many could be done."""
    costs = np.array([compartment.cheapest for compartment in compartments])
    for done in range(number):
        place = int(costs.argmin()) if len(costs) else 0
        if not len(costs) or not np.isfinite(costs[place]):
            return done
        compartments[place].merge()
        costs[place] = compartments[place].cheapest
    return number
