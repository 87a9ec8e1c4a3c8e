"""Words that the neural language model chooses, out of n-best lists that go with lattices."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hadpsgd.decoding.confidence import confidences
from hadpsgd.decoding.consensus import Edits
from hadpsgd.decoding.lattice import Lattice, Path, Scaling, best_paths
from hadpsgd.decoding.nbest_list import NbestList
from hadpsgd.decoding.nearest import nearest_path
from hadpsgd.decoding.word_lattice import WordArc, WordLattice
from hadpsgd.errors import UserError

Lists = Iterator[tuple[str, NbestList]]


@dataclass
class Rescoring:
    """Lists in the order of a decoding's lattices, and the weights of the neural model.

    weights: one for each scaling. With 0, the lattice's best path is taken, as without lists.
    """

    weights: Sequence[float]
    lists: Lists

    def next(self, utterance: str) -> NbestList:
        """The list of the next lattice.

        Raises:
            UserError: it is another utterance's.
        """
        name, found = next(self.lists, ("", None))
        if found is None or name != utterance:
            other = f"of {name}" if found else "no more of them"
            raise UserError(
                f"n-best lists do not go with the lattices: {utterance} wanted, {other} found",
                fix="Make them again: `hadpsgd neural-lists`",
            )
        return found

    def words(
        self, utterance: str, lattice: Lattice, scalings: Sequence[Scaling]
    ) -> list[Sequence[int]]:
        """The best words of the next lattice under each scaling with its weight."""
        found = self.next(utterance)
        pairs = list(zip(scalings, self.weights, strict=True))
        plain = [scaling for scaling, weight in pairs if not (weight and found.words)]
        paths = iter(best_paths(lattice, plain) if plain else [])
        return [
            found.best(scaling, weight) if weight and found.words else next(paths).words.tolist()
            for scaling, weight in pairs
        ]

    def path(
        self, utterance: str, lattice: Lattice, scaling: Scaling, silent: Collection[int]
    ) -> tuple[Path, list[float] | None]:
        """The best words of the next lattice as a path of it, and how probable each is: 1 for
        silent ones. The first of the weights counts."""
        found, weight = self.next(utterance), self.weights[0]
        path = best_paths(lattice, [scaling])[0]
        if not weight or not found.words:
            return path, confidences(lattice, path, scaling)
        words = found.best(scaling, weight)
        if words != tuple(path.words.tolist()):
            path = nearest_path(lattice, words, scaling)
        if confidences(lattice, path, scaling) is None:
            return path, None
        return path, list_confidences(found, scaling, weight, path.words.tolist(), silent)


def list_confidences(
    found: NbestList,
    scaling: Scaling,
    weight: float,
    words: Sequence[int],
    silent: Collection[int],
) -> list[float]:
    """Probability of each of some words, 0 .. 1, among the sequences of a list: how often they
    are said where these are, as minimum Bayes risk decoding counts (`decoding/consensus.py`)."""
    edits = Edits(tree(found, scaling, weight), silent)
    slots = np.zeros(2 * sum(word not in silent for word in words) + 1, np.int64)
    slots[1::2] = [word for word in words if word not in silent]
    _, gamma = edits.statistics(slots)
    own = gamma[edits.number(slots), np.arange(len(slots))][1::2]
    sure = iter(np.clip(own, 0.0, 1.0).tolist())
    return [1.0 if word in silent else next(sure) for word in words]


def tree(found: NbestList, scaling: Scaling, weight: float) -> WordLattice:
    """The sequences of a list as a tree: those that begin alike share the arcs of that, and each
    has an arc of its own, at its cost, from its last word to the end."""
    costs = found.costs(scaling, weight)
    places: dict[tuple[int, int], int] = {}  # node after a node and a word
    lasts: list[int] = []
    for words in found.words:
        node = 0
        for word in words:
            node = places.setdefault((node, word), len(places) + 1)
        lasts.append(node)
    end = len(places) + 1
    arcs = [_arc(before, node, word, 0.0) for (before, word), node in places.items()]
    above = (costs - costs.min()).tolist()
    arcs += [_arc(last, end, 0, cost) for last, cost in zip(lasts, above, strict=True)]
    return WordLattice(end + 1, sorted(arcs, key=lambda arc: (arc.source, arc.target)))


def _arc(source: int, target: int, word: int, cost: float) -> WordArc:
    return WordArc(source=source, target=target, word=word, cost=cost, graph=0.0, acoustic=0.0)
