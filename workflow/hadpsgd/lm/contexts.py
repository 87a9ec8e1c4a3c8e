"""Whether n-grams have what they need: hashes of 8 bytes instead of the n-grams themselves.

Two different n-grams may have the same hash: one of 2^64 pairs does. Then a fault goes unseen.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from hadpsgd.distinct import changes
from hadpsgd.lm.blocks import Block, Columns

Hashes = NDArray[np.uint64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # Knuth: multiples of it lie apart
_HALF = np.uint64(32)


class Hasher:
    """Hashes of n-grams by their words."""

    def __init__(self) -> None:
        self._words: defaultdict[bytes, int] = defaultdict()
        self._words.default_factory = self._words.__len__  # words are numbered as they come

    def __call__(self, words: list[list[bytes]]) -> Hashes:
        """uint64 [n-grams], of words by their place; without a place 0 for one n-gram."""
        hashes = np.zeros(len(words[0]) if words else 1, np.uint64)
        for column in words:
            numbers = np.fromiter(map(self._words.__getitem__, column), np.uint64, len(column))
            hashes = ((hashes ^ (hashes >> _HALF)) + np.uint64(1)) * _GOLDEN + numbers
        return hashes


class Contexts:
    """Tells whether the first words of every n-gram are an n-gram with a back-off weight, and
    whether one is listed twice."""

    def __init__(self) -> None:
        self._hash = Hasher()
        self._order = 0
        self._next: dict[bool, list[Hashes]] = {}
        self._known: dict[bool, Hashes] = {}
        self.twice: int | None = None
        """The order of an n-gram that is listed twice, once that order has ended."""
        self._again = np.uint64(0)

    def add(self, block: Block, columns: Columns) -> None:
        """The next n-grams of the file.

        Raises:
            UserError: an n-gram's context is missing or has no back-off weight.
        """
        if block.order != self._order:
            self.end()
            self._order, self._next = block.order, {True: [], False: []}
        if self._order > 1:
            self._look_up(block, self._hash(columns.words[:-1]))
        hashes, lacking = self._hash(columns.words), np.isnan(columns.backoff)
        self._next[True].append(hashes[~lacking])
        self._next[False].append(hashes[lacking])

    def end(self) -> None:
        """There are no more of the last order."""
        self._known = {with_: _joined(self._next.pop(with_)) for with_ in [*self._next]}
        for hashes in self._known.values():
            hashes.sort()
        found = np.concatenate([*self._known.values(), np.empty(0, np.uint64)])
        found.sort()
        again = np.flatnonzero(found[1:] == found[:-1])
        if len(again) and self.twice is None:
            self.twice, self._again = self._order, found[again[0]]

    def again(self, columns: Columns) -> list[int]:
        """Which of some n-grams of the order `twice` are the one that is listed twice."""
        return np.flatnonzero(self._hash(columns.words) == self._again).tolist()

    def _look_up(self, block: Block, asked: Hashes) -> None:
        rows = np.flatnonzero(changes(asked))  # neighbours have the same context
        bad = rows[~among(asked[rows], self._known.get(True, asked[:0]))]
        if len(bad):
            lacking = among(asked[bad[:1]], self._known.get(False, asked[:0]))[0]
            what = "has no back-off weight" if lacking else "is not listed"
            raise block.fail(
                f"the context of this {self._order}-gram {what}", block.line(int(bad[0]))
            )


def among(asked: Hashes, known: Hashes) -> NDArray[np.bool_]:
    """bool [asked]: which are among others, which ascend."""
    if not len(known):
        return np.zeros(len(asked), bool)
    return known[np.minimum(np.searchsorted(known, asked), len(known) - 1)] == asked


def _joined(parts: list[Hashes]) -> Hashes:
    return np.concatenate([np.empty(0, np.uint64), *parts])
