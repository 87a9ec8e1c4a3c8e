"""Makes n-best lists of lattices, with what an n-gram and a neural model say of each word."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from hadpsgd.decoding.lattice import Lattice, Scaling
from hadpsgd.decoding.nbest import nbest
from hadpsgd.decoding.nbest_list import NbestList
from hadpsgd.errors import UserError
from hadpsgd.lm.neural.events import Events
from hadpsgd.lm.neural.mixture import Models
from hadpsgd.parallel import map_in_order

TOGETHER = 8
"""Utterances whose lists are scored together."""


@dataclass(frozen=True)
class ListMaker:
    """Makes lists.

    Args:
        models: n-gram and neural.
        names: of the decoding's words by number.
        scalings: under each of them the best sequences are taken.
        count: so many.
        partial: utterances that ended within a sentence: the end costs nothing.
    """

    models: Models
    names: Mapping[int, str]
    scalings: Sequence[Scaling]
    count: int
    partial: frozenset[str] = frozenset()

    def __call__(self, lattices: Sequence[tuple[str, Lattice]]) -> list[tuple[str, NbestList]]:
        """The lists of some utterances.

        Raises:
            UserError: a word that one of the models lacks.
        """
        sequences = [self._sequences(lattice) for _, lattice in lattices]
        said = [self._said(words) for found in sequences for words in found]
        whole, place, lists = self.models.events(said), 0, []
        for (utterance, _), found in zip(lattices, sequences, strict=True):
            events = _part(whole, place, place + len(found))
            place += len(found)
            if utterance in self.partial:
                events.ngram[events.first[1:] - 1] = events.neural[events.first[1:] - 1] = 0.0
            costs = np.array([*found.values()], np.float64).reshape(-1, 2)
            lists.append((utterance, NbestList(tuple(found), costs[:, 0], costs[:, 1], events)))
        return lists

    def _sequences(self, lattice: Lattice) -> dict[tuple[int, ...], tuple[float, float]]:
        """Word sequences with their graph and acoustic cost, each once."""
        found: dict[tuple[int, ...], tuple[float, float]] = {}
        for scaling in self.scalings:
            for each in nbest(lattice, scaling, count=self.count):
                found.setdefault(each.words, (each.graph, each.acoustic))
        return found

    def _said(self, words: Sequence[int]) -> list[str]:
        said = [self.names.get(word, "") for word in words]
        for name in said:
            if name not in self.models.words or name not in self.models.ngram.ids:
                what = f"the neural language model lacks the word '{name}' of a lattice"
                raise UserError(
                    what, fix="Train it with the n-gram and the lang folder of the graph"
                )
        return said

    def all(
        self, lattices: Iterable[tuple[str, Lattice]], jobs: int = 1
    ) -> Iterator[tuple[str, NbestList]]:
        """Yield (utterance, its list) in the order of the lattices; `jobs` processes."""
        for lists in map_in_order(self._self, _chunks(lattices), jobs):
            yield from lists

    def _self(self) -> Callable[[list[tuple[str, Lattice]]], list[tuple[str, NbestList]]]:
        return self


def _part(whole: Events, low: int, high: int) -> Events:
    """Of some sentences, as copies."""
    first = whole.first[low : high + 1]
    some = slice(first[0], first[-1])
    columns = (whole.ngram[some].copy(), whole.neural[some].copy(), whole.known[some].copy())
    return Events(*columns, first - first[0])


def _chunks(lattices: Iterable[tuple[str, Lattice]]) -> Iterator[list[tuple[str, Lattice]]]:
    source = iter(lattices)
    while chunk := list(islice(source, TOGETHER)):
        yield chunk
