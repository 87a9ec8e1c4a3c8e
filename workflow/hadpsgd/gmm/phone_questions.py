"""Questions of decision trees: sets of phones that sound alike (cluster-phones, compile-questions).

Phones are split in two again and again, each time so that two Gaussians fit best; all the sets on
the way are questions. Kaldi's AutomaticallyObtainQuestions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hadpsgd.corpus.lang.topology import Topology
from hadpsgd.errors import UserError
from hadpsgd.gmm.context_stats import TreeStatistics, objective
from hadpsgd.gmm.event_map import PDF_CLASS
from hadpsgd.gmm.statistics import Doubles

TRIES = 10
Set = tuple[int, ...]


@dataclass(frozen=True)
class Questions:
    """sets: for each key (position in the window, or PDF_CLASS) the sets of values to ask for."""

    sets: Mapping[int, tuple[Set, ...]]

    def masks(self, *, key: int, size: int) -> Doubles:
        """float64 [questions, size]: 1 where a value is in the set."""
        masks = np.zeros((len(self.sets[key]), size))
        for row, values in enumerate(self.sets[key]):
            masks[row, [value for value in values if value < size]] = 1.0
        return masks


def automatic(
    stats: TreeStatistics,
    phone_sets: Sequence[Sequence[int]],
    seed: int,
    central_classes: Sequence[int] = (1,),
) -> list[Set]:
    """Sets of phones found by clustering `phone_sets` (sets.int) by their central frames.

    central_classes: pdf-classes to look at, the middle one of three by default. The sets that go
    in come out too.

    Raises:
        UserError: fewer than two of the sets were seen.
    """
    points = _points(stats, phone_sets, central_classes)
    if (points[:, 0] > 0).sum() < 2:
        raise UserError(
            f"questions: fewer than two phones have frames of pdf-class {list(central_classes)}",
            fix="Are there alignments of speech? Is the topology one of three states?",
        )
    random = np.random.default_rng([seed, 7])
    found: dict[Set, None] = {}
    stack = [np.arange(len(points))]
    while stack:
        members = stack.pop(0)
        gain, second = _halves(points[members], random)
        if gain > 0:
            stack += [members[~second], members[second]]
        if len(members) < len(points):  # a set of all would be no question
            found[_phones(members, phone_sets)] = None
    for index in range(len(phone_sets)):
        found[_phones([index], phone_sets)] = None
    return list(found)


def _points(
    stats: TreeStatistics, phone_sets: Sequence[Sequence[int]], classes: Sequence[int]
) -> Doubles:
    chosen = np.isin(stats.events[:, -1], classes)
    centres, sums = stats.events[chosen, stats.context.position], stats.sums[chosen]
    return np.array([sums[np.isin(centres, phones)].sum(axis=0) for phones in phone_sets])


def _phones(members: Iterable[int], phone_sets: Sequence[Sequence[int]]) -> Set:
    return tuple(sorted(phone for member in members for phone in phone_sets[member]))


def _halves(points: Doubles, random: np.random.Generator) -> tuple[float, NDArray[np.bool_]]:
    """The best of some tries of two-means: gain in log-likelihood, and who is in the second."""
    whole = float(objective(points.sum(axis=0)))
    best, chosen = 0.0, np.zeros(len(points), bool)
    if len(points) < 2:
        return best, chosen
    for _ in range(TRIES):
        second = np.zeros(len(points), bool)
        second[random.permutation(len(points))[: len(points) // 2]] = True
        gain = _refine(points, second) - whole
        if gain > best + 1e-9 * abs(whole):
            best, chosen = gain, second
    return best, chosen


def _refine(points: Doubles, second: NDArray[np.bool_]) -> float:
    """Move one point after the other, the most rewarding first; returns the log-likelihood."""
    sums = np.array([points[~second].sum(axis=0), points[second].sum(axis=0)])
    level = float(objective(sums).sum())
    while True:
        side = second.astype(int)
        moved = objective(sums[side] - points) + objective(sums[1 - side] + points)
        alone = np.bincount(side, minlength=2)[side] == 1
        moved[alone] = -np.inf
        place = int(np.argmax(moved))
        if moved[place] <= level + 1e-9 * abs(level):
            return level
        level = float(moved[place])
        sums[side[place]] -= points[place]
        sums[1 - side[place]] += points[place]
        second[place] = not second[place]


def compiled(phone_sets: Iterable[Sequence[int]], topology: Topology, width: int) -> Questions:
    """The same sets for every position of the window, and states before and after (PDF_CLASS)."""
    sets = tuple(sorted({tuple(sorted(phones)) for phones in phone_sets}))
    classes = max(topology.num_pdf_classes(phone) for phone in topology.phones.tolist())
    states = tuple(tuple(range(last + 1)) for last in range(classes - 1))
    return Questions({PDF_CLASS: states} | dict.fromkeys(range(width), sets))
