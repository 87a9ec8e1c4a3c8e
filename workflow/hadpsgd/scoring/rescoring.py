"""Words that the neural language model chooses, out of n-best lists that go with lattices."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np

from hadpsgd.decoding.confidence import confidences
from hadpsgd.decoding.consensus import BEAM, Consensus, Edits, consensus, least_risk
from hadpsgd.decoding.consensus_path import consensus_path, with_times
from hadpsgd.decoding.lattice import Lattice, Path, Scaling, best_paths
from hadpsgd.decoding.nbest_list import NbestList
from hadpsgd.decoding.nearest import nearest_path
from hadpsgd.decoding.word_lattice import WordArc, WordLattice
from hadpsgd.errors import UserError

Lists = Iterator[tuple[str, NbestList]]


@dataclass
class Rescoring:
    """Lists in the order of a decoding's lattices, and the weights of the neural model.

    weights: one for each scaling. With 0, what the lattice says is taken, as without lists.
    risk: of minimum Bayes risk (`decoding/consensus.py`), not the best words: of a list's sequences
    where there is a weight, of all paths where there is none.
    """

    weights: Sequence[float]
    lists: Lists
    risk: bool = False

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
        self,
        utterance: str,
        lattice: Lattice,
        scalings: Sequence[Scaling],
        silent: Collection[int] = (),
    ) -> list[Sequence[int]]:
        """The words of the next lattice under each scaling with its weight; of minimum Bayes risk
        without silent ones."""
        found = self.next(utterance)
        pairs = list(zip(scalings, self.weights, strict=True))
        if self.risk:
            return [self._agreed(found, lattice, pair, silent).words for pair in pairs]
        plain = [scaling for scaling, weight in pairs if not (weight and found.words)]
        paths = iter(best_paths(lattice, plain) if plain else [])
        return [
            found.best(scaling, weight) if weight and found.words else next(paths).words.tolist()
            for scaling, weight in pairs
        ]

    @staticmethod
    def _agreed(
        found: NbestList, lattice: Lattice, pair: tuple[Scaling, float], silent: Collection[int]
    ) -> Consensus:
        """Words of least expected errors under a scaling with its weight."""
        scaling, weight = pair
        if weight and found.words:
            return list_consensus(found, scaling, weight, silent)
        return consensus(lattice, scaling, silent)

    def path(
        self, utterance: str, lattice: Lattice, scaling: Scaling, silent: Collection[int]
    ) -> tuple[Path, list[float] | None]:
        """The words of the next lattice as a path of it, and how probable each is: 1 for silent
        ones. The first of the weights counts."""
        found, weight = self.next(utterance), self.weights[0]
        path = best_paths(lattice, [scaling])[0]
        if not weight or not found.words:
            if self.risk:
                return consensus_path(lattice, scaling, silent)
            return path, confidences(lattice, path, scaling)
        if self.risk and confidences(lattice, path, scaling) is not None:
            agreed = list_consensus(found, scaling, weight, silent)
            return with_times(lattice, path, agreed, scaling, silent)
        words = found.best(scaling, weight)
        if words != tuple(path.words.tolist()):
            path = nearest_path(lattice, words, scaling)
        if confidences(lattice, path, scaling) is None:
            return path, None
        return path, list_confidences(found, scaling, weight, path.words.tolist(), silent)


def list_consensus(
    found: NbestList, scaling: Scaling, weight: float, silent: Collection[int]
) -> Consensus:
    """The words of which the sequences of a list expect the fewest errors. None of a list meets
    another one before its end, so the risk is no upper bound but the expectation."""
    edits = Edits(tree(found, scaling, weight, beam=BEAM), silent)
    best = found.best(scaling, weight)
    return least_risk(edits, [word for word in best if word not in silent])


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


def tree(
    found: NbestList, scaling: Scaling, weight: float, *, beam: float = math.inf
) -> WordLattice:
    """The sequences of a list as a tree: those that begin alike share the arcs of that, and each
    has an arc of its own, at its cost, from its last word to the end. Those beyond a beam (nats
    from the best) are left out."""
    costs = found.costs(scaling, weight)
    above = costs - costs.min()
    near = above <= beam
    places: dict[tuple[int, int], int] = {}  # node after a node and a word
    lasts: list[int] = []
    for words in compress(found.words, near.tolist()):
        node = 0
        for word in words:
            node = places.setdefault((node, word), len(places) + 1)
        lasts.append(node)
    end = len(places) + 1
    arcs = [_arc(before, node, word, 0.0) for (before, word), node in places.items()]
    arcs += [
        _arc(last, end, 0, cost) for last, cost in zip(lasts, above[near].tolist(), strict=True)
    ]
    return WordLattice(end + 1, sorted(arcs, key=lambda arc: (arc.source, arc.target)))


def _arc(source: int, target: int, word: int, cost: float) -> WordArc:
    return WordArc(source=source, target=target, word=word, cost=cost, graph=0.0, acoustic=0.0)
