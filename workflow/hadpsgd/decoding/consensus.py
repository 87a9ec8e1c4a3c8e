"""Minimum Bayes risk decoding: the words of which a lattice expects the fewest errors.

Xu, Povey, Mangu, Zhu (2011), "Minimum Bayes Risk decoding and system combination based on a
recursion for edit distance"; Kaldi's lattice-mbr-decode (sausages.cc), whose letters are kept here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hadpsgd.decoding.lattice import Lattice, Scaling, best_paths
from hadpsgd.decoding.word_lattice import WordLattice, word_lattice

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BEAM = 6.0  # nats from the best path: what lies beyond has next to no probability
DELTA = 1e-5  # an insertion costs that much more than a substitution (Kaldi's delta)
SURE = 1e-9  # by how much another word has to be more probable
ROUNDS = 100


@dataclass(frozen=True)
class Consensus:
    """Words, the probability of each, and how many errors the lattice expects in them.

    The risk is an upper bound: paths that meet in a node share their way of aligning (equation 18).
    """

    words: tuple[int, ...]
    confidences: tuple[float, ...]
    risk: float


def consensus(
    lattice: Lattice, scaling: Scaling, silent: Collection[int] = (), beam: float = BEAM
) -> Consensus:
    """The words of least expected errors, from those of the best path on.

    Args:
        lattice: of a search; none of its words go on with one before (`Scaling.inside`).
        scaling: what makes costs probabilities.
        silent: words that do not count.
        beam: of the paths that have a say, in nats from the best.
    """
    if not lattice.num_states:
        return Consensus((), (), 0.0)
    best = best_paths(lattice, [scaling])[0].words.tolist()
    edits = Edits(word_lattice(lattice, scaling, beam), silent)
    return least_risk(edits, [word for word in best if word not in silent])


def least_risk(edits: Edits, words: Sequence[int]) -> Consensus:
    """Change words, one after another and with those between them, until no risk is saved."""
    for left in reversed(range(ROUNDS)):
        slots = slots_of(words)
        risk, gamma = edits.statistics(slots)
        own = gamma[edits.number(slots), np.arange(len(slots))]
        most = gamma.max(0)
        better = most > own + SURE
        if not (left and better.any()):
            break
        slots[better] = edits.words[gamma[:, better].argmax(0)]
        words = slots[slots > 0].tolist()
    sure = np.minimum(own[1::2], 1.0)
    return Consensus(tuple(words), tuple(sure.tolist()), risk)


def slots_of(words: Sequence[int]) -> Ints:
    """Words with room for one more before and after each."""
    slots = np.zeros(2 * len(words) + 1, np.int64)
    slots[1::2] = words
    return slots


class _Sums:
    """Rows of values that are added to rows of a table, several to one."""

    def __init__(self, rows: Ints) -> None:
        self.order = np.argsort(rows, kind="stable")
        self.begins, self.places, _ = _groups(rows[self.order])

    def add_to(self, table: Floats, values: Floats) -> None:
        """Add each row of values to the row of the table that is meant."""
        table[self.places] += np.add.reduceat(values[self.order], self.begins, axis=0)


class _Part(NamedTuple):
    """Arcs of a level; where those into each node begin; how they add up by source and by word."""

    arcs: slice
    into: tuple[Ints, Ints, Ints]
    sources: _Sums
    said: _Sums


class Edits:
    """Expected edits between the paths of a word lattice and words, and what stands for what."""

    def __init__(self, lattice: WordLattice, silent: Collection[int] = ()) -> None:
        columns = [
            (arc.source, arc.target, 0 if arc.word in silent else arc.word, arc.cost)
            for arc in lattice.arcs
        ]
        sources, targets, words, costs = map(np.array, zip(*columns, strict=True))
        self.nodes = lattice.nodes
        level = np.zeros(self.nodes, np.int64)
        for source, target, *_ in columns:  # sorted by source
            level[target] = max(level[target], level[source] + 1)
        order = np.lexsort((targets, level[targets]))
        self.sources: Ints = sources[order]
        self.targets: Ints = targets[order]
        self.words: Ints = np.unique(np.append(words, 0))
        """Of the lattice, and 0 for none; sorted."""
        self.arc_words: Ints = words[order]
        bounds = np.append(_groups(level[self.targets])[0], len(order)).tolist()
        self.parts = [self._part(low, high) for low, high in pairwise(bounds)]
        """Arcs level by level: those into a node stand side by side in one of them."""
        self.share: Floats = self._shares(-costs[order])

    def number(self, words: Ints) -> Ints:
        """Places of words in `words`."""
        return np.searchsorted(self.words, words)

    def _part(self, low: int, high: int) -> _Part:
        arcs = slice(low, high)
        said = self.number(self.arc_words[arcs])
        return _Part(arcs, _groups(self.targets[arcs]), _Sums(self.sources[arcs]), _Sums(said))

    def _shares(self, scores: Floats) -> Floats:
        """Of each arc how probable it is among those that lead to where it leads."""
        alpha = np.full(self.nodes, -np.inf)
        alpha[0] = 0.0
        share = np.empty(len(scores))
        for part in self.parts:
            begins, nodes, sizes = part.into
            values = alpha[self.sources[part.arcs]] + scores[part.arcs]
            alpha[nodes] = np.logaddexp.reduceat(values, begins)
            share[part.arcs] = np.exp(values - alpha[nodes].repeat(sizes))
        return share

    def risk(self, words: Sequence[int]) -> float:
        """Expected edits against words."""
        return float(self._forward(slots_of(words))[-1, -1])

    def _forward(self, slots: Ints) -> Floats:
        """alpha': float64 [nodes, slots + 1], expected edits of paths to a node (equation 17)."""
        alpha = np.zeros((self.nodes, len(slots) + 1))
        alpha[0, 1:] = np.cumsum(slots > 0)
        for part in self.parts:
            begins, nodes, _ = part.into
            ways = self._ways(part.arcs, alpha, slots)[2] * self.share[part.arcs, None]
            alpha[nodes] = np.add.reduceat(ways, begins, axis=0)
        return alpha

    def _ways(self, part: slice, alpha: Floats, slots: Ints) -> tuple[Floats, Floats, Floats]:
        """Edits after each arc and slot if its word stands for the slot's (inf for no slot), if it
        is one too many, and at best: then the slot may also be one that nothing stands for."""
        before, words = alpha[self.sources[part]], self.arc_words[part, None]
        replaced = np.full(before.shape, np.inf)
        replaced[:, 1:] = before[:, :-1] + (words != slots)
        inserted = before + (words > 0) * (1.0 + DELTA)
        passed = np.concatenate([[0.0], np.cumsum(slots > 0)])
        least = np.minimum.accumulate(np.minimum(replaced, inserted) - passed, axis=1) + passed
        return replaced, inserted, least

    def statistics(self, slots: Ints) -> tuple[float, Floats]:
        """Expected edits, and gamma: float64 [words, slots], how often which stands for which."""
        alpha = self._forward(slots)
        beta = np.zeros_like(alpha)
        beta[-1, -1] = 1.0
        gamma = np.zeros((len(self.words), len(slots)))
        for part in reversed(self.parts):
            replaced, inserted, least = self._ways(part.arcs, alpha, slots)
            mass = beta[self.targets[part.arcs]] * self.share[part.arcs, None]
            # sums in `least` are rounded otherwise; words before none, as a slot's place says more
            takes = (replaced <= inserted) & (replaced <= least + SURE)
            leaves = ~takes & (inserted <= least + SURE)
            for slot in range(len(slots), 0, -1):
                skips = np.where(takes[:, slot] | leaves[:, slot], 0.0, mass[:, slot])
                mass[:, slot - 1] += skips
                gamma[0, slot - 1] += skips.sum()
                mass[:, slot] -= skips
            taken = np.where(takes[:, 1:], mass[:, 1:], 0.0)
            part.said.add_to(gamma, taken)
            mass[:, 1:] -= taken
            mass[:, :-1] += taken
            part.sources.add_to(beta, mass)
        rest = np.cumsum(beta[0, :0:-1])[::-1]  # slots before the first word of all
        gamma[0] += rest
        return float(alpha[-1, -1]), gamma


def _groups(keys: Ints) -> tuple[Ints, Ints, Ints]:
    """Of keys of which equal ones stand together: where each begins, which it is, how many."""
    begins = np.append(0, np.flatnonzero(keys[1:] != keys[:-1]) + 1)
    return begins, keys[begins], np.append(begins[1:], len(keys)) - begins
