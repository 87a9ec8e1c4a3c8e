"""N-best lists of lattices, with what an n-gram and a neural model say of each word.

The lattices' graph costs have those of the n-gram, so what another model
says is added as a change of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd.decoding.lattice import Lattice, Scaling
from hadpsgd.decoding.nbest import nbest
from hadpsgd.errors import UserError
from hadpsgd.lm.neural.mixture import Events, Models, interpolated
from hadpsgd.parallel import map_in_order

Floats = NDArray[np.float64]
TOGETHER = 8
"""Utterances whose lists are scored together."""


@dataclass(frozen=True)
class NbestList:
    """Word sequences of an utterance.

    Args:
        words: numbers of the decoding's words.
        graph, acoustic: float64 [sequences], costs in nats, not scaled; those of the n-gram are in
            the first.
        events: what both models say of words and ends, sentence by sentence. Where an utterance
            ended within a sentence, nothing of its end.
    """

    words: tuple[tuple[int, ...], ...]
    graph: Floats
    acoustic: Floats
    events: Events

    @cached_property
    def _sizes(self) -> Floats:
        return np.array([len(words) for words in self.words], np.float64)

    def changes(self, weight: float) -> Floats:
        """float64 [sequences]: what each costs more, in nats, where the neural model has a weight
        in the interpolation and the n-gram the rest."""
        if weight == 0.0 or not self.words:
            return np.zeros(len(self.words))
        events = self.events
        more = events.ngram - interpolated(events.ngram, events.neural, weight)
        return np.add.reduceat(more, events.first[:-1])

    def costs(self, scaling: Scaling, weight: float) -> Floats:
        """float64 [sequences]: scaled costs."""
        own = self.graph + scaling.acoustic_scale * self.acoustic
        return own + scaling.word_penalty * self._sizes + self.changes(weight)

    def best(self, scaling: Scaling, weight: float) -> tuple[int, ...]:
        """The words that cost least; none of an empty list."""
        return self.words[int(self.costs(scaling, weight).argmin())] if self.words else ()


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


def partial_of(folder: Path) -> frozenset[str]:
    """Utterances of a decoding folder that ended within a sentence."""
    path = folder / "decode.json"
    try:
        return frozenset(json.loads(path.read_text(encoding="utf-8")).get("partial", ()))
    except FileNotFoundError:
        return frozenset()
    except (ValueError, AttributeError, TypeError) as error:
        raise UserError(f"damaged ({error})", where=path, fix="Decode again") from None


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
