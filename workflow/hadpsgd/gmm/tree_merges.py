"""Merging of similar leaves under a root, bottom up (Kaldi's ClusterBottomUp and its kin)."""

from __future__ import annotations

import numpy as np

from hadpsgd.gmm.context_stats import objective
from hadpsgd.gmm.statistics import Doubles


class Compartment:
    """Leaves that may be merged with one another.

    What a merge costs is the log-likelihood lost by one Gaussian in place of two.
    """

    def __init__(self, leaves: list[int], sums: Doubles, floor: float) -> None:
        """sums: [leaves, 1 + 2 dim]."""
        self.merged_into = {leaf: leaf for leaf in leaves}
        self._leaves, self._sums, self._floor = leaves, sums.copy(), floor
        self._levels = objective(self._sums, floor)
        self._costs = np.full((len(leaves), len(leaves)), np.inf)  # above the diagonal
        for first in range(len(leaves)):
            self._measure(first, np.arange(first + 1, len(leaves)))

    def _measure(self, one: int, others: np.ndarray) -> None:
        both = objective(self._sums[one] + self._sums[others], self._floor)
        costs = self._levels[one] + self._levels[others] - both
        self._costs[np.minimum(one, others), np.maximum(one, others)] = costs

    @property
    def cheapest(self) -> float:
        """Cost of the cheapest merge; infinite where none is left."""
        return float(self._costs.min()) if self._costs.size else np.inf

    def merge(self) -> None:
        """Do the cheapest merge."""
        kept, gone = divmod(int(self._costs.argmin()), len(self._leaves))
        self._sums[kept] += self._sums[gone]
        self._levels[kept] = objective(self._sums[kept], self._floor)
        self._costs[gone, :] = self._costs[:, gone] = np.inf
        for leaf, target in self.merged_into.items():
            if target == self._leaves[gone]:
                self.merged_into[leaf] = self._leaves[kept]
        alive = np.array([self.merged_into[leaf] == leaf for leaf in self._leaves])
        alive[kept] = False
        self._measure(kept, np.flatnonzero(alive))


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
