"""Costs of aligning two long word networks, over arrays: all cells at once that are as far along.

A cell is an arc of the reference with an arc of the hypothesis. It waits for cells of fewer arcs
from the start; those with as many in sum are filled together. The sums are those of `align`, in
the same order, so that ties stay ties.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hadpsgd.scoring.costs import NULL_PAIR, SUBSTITUTION, gap_cost, same
from hadpsgd.scoring.network import Network, Word

Indices = NDArray[np.int64]
Costs = NDArray[np.float32]


@dataclass(frozen=True)
class _Side:
    """One of the networks.

    arcs: by level, which is the most arcs from the start. first: of each level the place of its
    first arc among them; last, their number. level: of each arc. before: [arcs, most], where in
    the table those stand that may precede each; where there is none, what is no arc. width: of
    each arc, how many there are.
    """

    arcs: Indices
    first: Indices
    level: Indices
    before: Indices
    width: Indices

    @classmethod
    def of(cls, network: Network, stride: int) -> _Side:
        """Of a network whose neighbouring arcs are so far from one another in the table."""
        level = [0] * len(network.words)
        width = np.array([len(before) for before in network.before])
        table = np.full((len(width), max(int(width.max()), 1)), -1)
        for arc, before in enumerate(network.before):
            level[arc] = 1 + max((level[i] for i in before), default=-1)
            table[arc, : len(before)] = before
        levels = np.array(level)
        first = np.concatenate([[0], np.bincount(levels).cumsum()])
        return cls(levels.argsort(kind="stable"), first, levels, table * stride, width)

    @property
    def deepest(self) -> int:
        """The highest level."""
        return len(self.first) - 2

    def least(self, flat: Costs, arcs: Indices, others: Indices) -> Costs:
        """Of cells the least cost of those with an arc before the own one. others: where those of
        the other side stand."""
        found = flat[self.before[arcs, 0] + others]
        for number in range(1, int(self.width[arcs].max(initial=0))):
            more = (self.width[arcs] > number).nonzero()[0]
            there = flat[self.before[arcs[more], number] + others[more]]
            found[more] = np.minimum(found[more], there)
        return found


def fill(ref: Network, hyp: Network, fragments: bool) -> Costs:
    """Costs of aligning all up to each arc of one with all up to each arc of the other.

    [arcs of the reference + 1, arcs of the hypothesis + 1]; the last ones are no arcs, and
    infinite.
    """
    stride = len(hyp.words) + 1
    rows, columns = _Side.of(ref, stride), _Side.of(hyp, 1)
    pairs = _Pairs.of(ref.words, hyp.words, fragments)
    deletion, insertion = _gaps(ref), _gaps(hyp)
    costs = np.full((len(ref.words) + 1, stride), np.inf, np.float32)
    costs[0, 0] = 0.0
    flat = costs.reshape(-1)
    for time in range(1, rows.deepest + columns.deepest + 1):
        a, b = _cells(rows, columns, time)
        above = rows.least(flat, a, b) + deletion[a]
        left = columns.least(flat, b, a * stride) + insertion[b]
        both = _least_of_both(flat, rows, columns, a, b) + pairs.cost(a, b)
        flat[a * stride + b] = np.minimum(np.minimum(both, above), left)
    return costs


def _gaps(network: Network) -> Costs:
    return np.array([0.0, *map(gap_cost, network.words[1:])], np.float32)


def _cells(rows: _Side, columns: _Side, time: int) -> tuple[Indices, Indices]:
    """Arcs of both, whose levels are `time` in sum."""
    low, high = max(0, time - columns.deepest), min(time, rows.deepest)
    some = rows.arcs[rows.first[low] : rows.first[high + 1]]
    other = time - rows.level[some]
    begin = columns.first[other]
    counts = columns.first[other + 1] - begin
    within = np.arange(counts.sum()) - (counts.cumsum() - counts).repeat(counts)
    return some.repeat(counts), columns.arcs[begin.repeat(counts) + within]


def _least_of_both(flat: Costs, rows: _Side, columns: _Side, a: Indices, b: Indices) -> Costs:
    """Of cells the least cost of those with arcs before both own ones."""
    found = columns.least(flat, b, rows.before[a, 0])
    for number in range(1, int(rows.width[a].max(initial=0))):
        more = (rows.width[a] > number).nonzero()[0]
        there = columns.least(flat, b[more], rows.before[a[more], number])
        found[more] = np.minimum(found[more], there)
    return found


@dataclass(frozen=True)
class _Pairs:
    """What two arcs cost that stand for one another.

    ref, hyp: of each arc the number of its text. table: by both numbers.
    """

    ref: Indices
    hyp: Indices
    table: Costs

    @classmethod
    def of(cls, ref: Sequence[Word], hyp: Sequence[Word], fragments: bool) -> _Pairs:
        """Of the words of both."""
        mine, theirs = _numbered(ref), _numbered(hyp)
        table = np.full((len(mine), len(theirs)), SUBSTITUTION, np.float32)
        for text, (number, word) in mine.items():
            if text in theirs:
                table[number, theirs[text][0]] = NULL_PAIR if word.is_null else 0.0
        if fragments:
            for own, (i, word) in mine.items():
                for other in theirs if _is_fragment(own) else filter(_is_fragment, theirs):
                    j, its = theirs[other]
                    if own != other and same(word, its, fragments):
                        table[i, j] = 0.0
        return cls(
            ref=np.array([mine[word.text][0] for word in ref]),
            hyp=np.array([theirs[word.text][0] for word in hyp]),
            table=table,
        )

    def cost(self, a: Indices, b: Indices) -> Costs:
        """Of cells."""
        return self.table[self.ref[a], self.hyp[b]]


def _numbered(words: Sequence[Word]) -> dict[str, tuple[int, Word]]:
    """The different texts, each with a number and a word that has it."""
    found: dict[str, tuple[int, Word]] = {}
    for word in words:
        found.setdefault(word.text, (len(found), word))
    return found


def _is_fragment(text: str) -> bool:
    return len(text) > 1 and (text.startswith("-") or text.endswith("-"))
