"""Splitting of leaves by the question that gains most likelihood (Kaldi's SplitDecisionTree)."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hadpsgd.gmm.context_stats import ABSENT, TreeStatistics, column, objective
from hadpsgd.gmm.event_map import DEEPEST, Leaf, Node, Split
from hadpsgd.gmm.phone_questions import Questions, Set
from hadpsgd.gmm.statistics import Doubles

Rows = NDArray[np.int64]


class Choice(NamedTuple):
    """A question and what asking it gains."""

    gain: float
    key: int
    values: Set


@dataclass
class Grown:
    """A node that grows: a leaf with rows of the statistics, or split in two.

    depth: questions above it.
    """

    leaf: int
    rows: Rows
    depth: int = 0
    choice: Choice | None = None
    branches: tuple[Grown, Grown] | None = None

    def node(self) -> Node:
        """As a tree."""
        if self.branches is None or self.choice is None:
            return Leaf(self.leaf)
        yes, no = self.branches
        return Split(self.choice.key, self.choice.values, yes.node(), no.node())

    def leaves(self) -> list[Grown]:
        """All leaves below."""
        if self.branches is None:
            return [self]
        return [leaf for branch in self.branches for leaf in branch.leaves()]


class Splitter:
    """Finds the best question of a set of events."""

    def __init__(self, stats: TreeStatistics, questions: Questions, floor: float) -> None:
        """Questions are asked of all keys that they have."""
        self.stats, self.floor = stats, floor
        self._questions = questions
        size = int(stats.events.max()) + 1
        self._masks = {key: questions.masks(key=key, size=size) for key in sorted(questions.sets)}

    def choose(self, rows: Rows) -> Choice | None:
        """The question that gains most; None where nothing can be gained."""
        if len(rows) < 2:
            return None
        sums = self.stats.sums[rows]
        whole = sums.sum(axis=0)
        before = float(objective(whole, self.floor))
        best: Choice | None = None
        for key, masks in self._masks.items():
            values = self.stats.events[rows, column(width=self.stats.context.width, key=key)]
            if not len(masks) or values.min() == ABSENT:
                continue
            present, grouped = _by_value(values, sums)
            if len(present) < 2:
                continue
            yes = masks[:, present] @ grouped
            both = np.stack([yes, whole - yes])
            gains = objective(both, self.floor).sum(axis=0) - before
            # rounding must not make a branch of nothing
            gains[(both[..., 0] < 1e-6 * whole[0]).any(axis=0)] = -np.inf
            place = int(np.argmax(gains))
            if gains[place] > (best.gain if best else 0.0):
                asked = self._questions.sets[key][place]
                best = Choice(gain=float(gains[place]), key=key, values=asked)
        return best

    def branches(self, rows: Rows, choice: Choice) -> tuple[Rows, Rows]:
        """Rows whose answer is yes, and the others."""
        values = self.stats.events[rows, column(width=self.stats.context.width, key=choice.key)]
        yes = np.isin(values, choice.values)
        return rows[yes], rows[~yes]


def _by_value(values: NDArray[np.int32], sums: Doubles) -> tuple[NDArray[np.int32], Doubles]:
    order = np.argsort(values, kind="stable")
    present, starts = np.unique(values[order], return_index=True)
    return present, np.add.reduceat(sums[order], starts, axis=0)


class Splits(NamedTuple):
    """How often leaves were split, what was gained, the smallest gain of one split."""

    number: int
    gain: float
    smallest: float


def grow(
    roots: list[Grown], closed: set[int], splitter: Splitter, *, threshold: float, max_leaves: int
) -> Splits:
    """Split the leaf that gains most, again and again; those in `closed` stay.

    Until a split gains no more than `threshold`, or there are `max_leaves` (0: no limit).
    """
    queue: list[tuple[float, int, Grown]] = []

    def enter(node: Grown) -> None:
        if node.depth < DEEPEST:
            node.choice = splitter.choose(node.rows)
        if node.choice is not None and node.choice.gain > threshold:
            heapq.heappush(queue, (-node.choice.gain, node.leaf, node))

    for root in roots:
        if root.leaf not in closed:
            enter(root)
    number, gain, smallest, following = 0, 0.0, np.inf, len(roots)
    while queue and (max_leaves <= 0 or following < max_leaves):
        _, _, node = heapq.heappop(queue)
        if node.choice is None:
            continue
        yes, no = splitter.branches(node.rows, node.choice)
        below = node.depth + 1
        node.branches = Grown(node.leaf, yes, below), Grown(following, no, below)
        following += 1
        number += 1
        gain += node.choice.gain
        smallest = min(smallest, node.choice.gain)
        for branch in node.branches:
            enter(branch)
    return Splits(number=number, gain=gain, smallest=float(smallest))
