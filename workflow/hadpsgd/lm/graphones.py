"""Graphones: letters of a word and the phones that they stand for, as one unit.

Sources: Bisani and Ney, Speech Communication 50 (2008); Jiampojamarn et al., NAACL 2007 (alignment
of many letters to many phones); Novak et al., Natural Language Engineering 22 (2016) (long units
cost their length).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hadpsgd.corpus.lang.graphemes import graphemes
from hadpsgd.corpus.lang.lexicon_fst import SOUND

SHAPES = ((1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (4, 1))
"""Numbers of letters and phones in a unit: every letter is heard together with its neighbours."""
_ITERATIONS = 10


@dataclass(frozen=True, order=True)
class Graphone:
    """Letters, and the phones that they stand for."""

    letters: str
    phones: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its letters, and its phones where they are others than the letters."""
        plain = self.phones == graphemes(self.letters)
        return self.letters if plain else SOUND.join([self.letters, *self.phones])


def joined(graphones: Iterable[Graphone]) -> Graphone:
    """One graphone of many."""
    parts = list(graphones)
    phones = (phone for part in parts for phone in part.phones)
    return Graphone("".join(part.letters for part in parts), tuple(phones))


Spoken = tuple[str, tuple[str, ...]]
"""A word and its phones."""


def of_letters(word: str) -> tuple[Graphone, ...]:
    """A word that is pronounced as it is spelled, letter by letter."""
    return tuple(Graphone(sign, graphemes(sign)) for sign in word)


def align(lexicon: Iterable[Spoken]) -> dict[Spoken, tuple[Graphone, ...]]:
    """The most likely graphones of every entry, by expectation maximisation over all entries.

    Entries with more phones or letters than units can hold are left out.
    """
    graphones: dict[Graphone, int] = {}
    shapes = [_Shape(entries, graphones) for entries in _by_shape(lexicon)]
    lengths = np.array([max(len(g.letters), len(g.phones)) for g in graphones])
    # at first every unit is alike but for its length
    scores = 0.1**lengths
    for _ in range(_ITERATIONS):
        counts = np.zeros(len(graphones))
        for shape in shapes:
            shape.expect(scores, counts)
        scores = (counts / counts.sum()) ** lengths
    units = list(graphones)
    return {
        entry: tuple(units[number] for number in path)
        for shape in shapes
        for entry, path in zip(shape.entries, shape.best(scores), strict=True)
    }


def _by_shape(lexicon: Iterable[Spoken]) -> Iterator[list[Spoken]]:
    """The entries that can be aligned, those with as many letters and phones together."""
    groups: dict[tuple[int, int], list[Spoken]] = defaultdict(list)
    for word, phones in sorted(set(lexicon)):
        groups[len(word), len(phones)].append((word, phones))
    for size, entries in sorted(groups.items()):
        if _reachable(*size):
            yield entries


def _reachable(letters: int, phones: int) -> bool:
    """Whether units can hold so many letters and phones."""
    reached = {(0, 0)}
    for i in range(letters + 1):
        for j in range(phones + 1):
            reached |= {(i, j) for a, b in SHAPES if (i - a, j - b) in reached}
    return (letters, phones) in reached


class _Shape:
    """Entries with the same numbers of letters and phones, worked on at once.

    numbers[a, b][:, i, j]: the graphone of `a` letters from i and `b` phones from j, of each entry.
    """

    def __init__(self, entries: Sequence[Spoken], graphones: dict[Graphone, int]) -> None:
        self.entries = entries
        self.letters, self.phones = len(entries[0][0]), len(entries[0][1])
        self.numbers = {
            (a, b): np.array(
                [
                    [
                        [
                            graphones.setdefault(
                                Graphone(word[i : i + a], phones[j : j + b]), len(graphones)
                            )
                            for j in range(self.phones - b + 1)
                        ]
                        for i in range(self.letters - a + 1)
                    ]
                    for word, phones in entries
                ]
            )
            for a, b in SHAPES
            if a <= self.letters and b <= self.phones
        }

    def expect(self, scores: NDArray[np.float64], counts: NDArray[np.float64]) -> None:
        """Add how often every graphone is used on the paths of these entries."""
        forward = self._table()
        forward[:, 0, 0] = 1
        for i, j, a, b in self._steps():
            unit = scores[self.numbers[a, b][:, i, j]]
            forward[:, i + a, j + b] += forward[:, i, j] * unit
        backward = self._table()
        backward[:, -1, -1] = 1 / np.maximum(forward[:, -1, -1], np.finfo(float).tiny)
        for i, j, a, b in reversed(list(self._steps())):
            unit = scores[self.numbers[a, b][:, i, j]]
            used = unit * backward[:, i + a, j + b]
            backward[:, i, j] += used
            np.add.at(counts, self.numbers[a, b][:, i, j], forward[:, i, j] * used)

    def best(self, scores: NDArray[np.float64]) -> Iterator[list[int]]:
        """The graphones of the best path of every entry."""
        best = self._table()
        best[:, 0, 0] = 1
        came = np.zeros((*best.shape, 2), np.int64)
        for i, j, a, b in self._steps():
            score = best[:, i, j] * scores[self.numbers[a, b][:, i, j]]
            better = score > best[:, i + a, j + b]
            best[better, i + a, j + b] = score[better]
            came[better, i + a, j + b] = a, b
        for entry in range(len(self.entries)):
            i, j = self.letters, self.phones
            path: list[int] = []
            while i or j:
                a, b = came[entry, i, j]
                i, j = i - a, j - b
                path.append(int(self.numbers[a, b][entry, i, j]))
            yield path[::-1]

    def _table(self) -> NDArray[np.float64]:
        return np.zeros((len(self.entries), self.letters + 1, self.phones + 1))

    def _steps(self) -> Iterator[tuple[int, int, int, int]]:
        """Every place and shape of a unit, places before those that they lead to."""
        for i in range(self.letters):
            for j in range(self.phones):
                for a, b in self.numbers:
                    if i + a <= self.letters and j + b <= self.phones:
                        yield i, j, a, b
