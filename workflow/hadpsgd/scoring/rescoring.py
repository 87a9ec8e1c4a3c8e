"""Words that the neural language model chooses, out of n-best lists that go with lattices."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from hadpsgd.decoding.confidence import confidences
from hadpsgd.decoding.consensus_path import with_times
from hadpsgd.decoding.lattice import Lattice, Path, Scaling, best_paths
from hadpsgd.decoding.list_consensus import list_confidences, list_consensus
from hadpsgd.decoding.nbest_list import NbestList
from hadpsgd.decoding.nearest import nearest_path
from hadpsgd.errors import UserError

Lists = Iterator[tuple[str, NbestList]]


@dataclass
class Rescoring:
    """Lists in the order of a decoding's lattices, and the weights of the neural model.

    weights: one for each scaling. With 0, the best words are the lattice's, as without lists.
    risk: not the best words but those of minimum Bayes risk among a list's sequences, with 0, too.
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
        if self.risk and found.words:
            costs = found.costs_under(pairs)
            return [agreed.words for agreed in list_consensus(found.words, costs, silent)]
        plain = [scaling for scaling, weight in pairs if not (weight and found.words)]
        paths = iter(best_paths(lattice, plain) if plain else [])
        return [
            found.best(scaling, weight) if weight and found.words else next(paths).words.tolist()
            for scaling, weight in pairs
        ]

    def path(
        self, utterance: str, lattice: Lattice, scaling: Scaling, silent: Collection[int]
    ) -> tuple[Path, list[float] | None]:
        """The words of the next lattice as a path of it, and how probable each is: 1 for silent
        ones. The first of the weights counts."""
        found, weight = self.next(utterance), self.weights[0]
        path = best_paths(lattice, [scaling])[0]
        plain = confidences(lattice, path, scaling)
        if plain is None or not found.words:  # a single path
            return path, plain
        costs = found.costs(scaling, weight)
        if self.risk:
            (agreed,) = list_consensus(found.words, costs[None], silent)
            return with_times(lattice, path, agreed, scaling, silent)
        if not weight:
            return path, plain
        words = found.words[int(costs.argmin())]
        if words != tuple(path.words.tolist()):
            path = nearest_path(lattice, words, scaling)
        return path, list_confidences(found.words, costs, words, silent)
