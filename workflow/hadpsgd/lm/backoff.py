"""A back-off n-gram model in arrays: probabilities of many words at once.

The n-grams of an order are sorted by one number (the row of their context among the n-grams below,
times the size of the vocabulary, plus their last word), so one is found by a binary search for each
of its words. 16 bytes an n-gram are held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hadpsgd.lm import arpa
from hadpsgd.lm.blocks import Block, Columns
from hadpsgd.progress import tracked

Ids = NDArray[np.int64]
Floats = NDArray[np.floating[Any]]
NONE = -1
"""Instead of a word: none there, or one that the model lacks. Instead of a row: not listed."""


@dataclass(frozen=True)
class Order:
    """All n-grams of one length, sorted.

    Args:
        keys: int64 [n-grams], ascending: row of the context * vocabulary + last word.
        log_prob: [n-grams], log10.
        backoff: [n-grams], log10; 0 where there is none.
    """

    keys: Ids
    log_prob: Floats
    backoff: Floats


class Backoff:
    """p(w | h) = p(hw) where hw is listed, else backoff(h) p(w | h without its first word).

    Args:
        words: the vocabulary; a word's id is its place.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = words
        self.ids = {word: number for number, word in enumerate(words)}
        self.orders: list[Order] = []

    def id(self, word: str) -> int:
        """A word's; that of <unk>, or NONE, for one that the model lacks."""
        return self.ids.get(word, self.ids.get(arpa.UNK, NONE))

    def rows(self, grams: Ids) -> Ids:
        """Where n-grams are, int64 [n-grams]: NONE for those that are not listed.

        Args:
            grams: int64 [n-grams, length], of words.
        """
        found = np.where(grams[:, 0] >= 0, grams[:, 0], NONE)
        for length in range(2, grams.shape[1] + 1):
            found = self.extended(length, found, grams[:, length - 1])
        return found

    def extended(self, length: int, contexts: Ids, words: Ids) -> Ids:
        """Rows of the n-grams of a length, given the rows of their contexts and last words."""
        if length == 1:
            return np.where(words >= 0, words, NONE)
        if length > len(self.orders):
            return np.full(len(words), NONE)
        keys = self.orders[length - 1].keys
        asked = contexts * len(self.words) + words
        place = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
        listed = (contexts >= 0) & (words >= 0) & (keys[place] == asked)
        return np.where(listed, place, NONE)

    def grams(self, length: int) -> Ids:
        """All n-grams of a length, int64 [n-grams, length], in the order of their rows."""
        return self.spelled(length, self.orders[length - 1].keys)

    def spelled(self, length: int, keys: Ids) -> Ids:
        """The words of n-grams of a length by their keys, int64 [n-grams, length].

        Only those of their contexts need be listed.
        """
        columns, rows = [], keys
        for order in range(length, 1, -1):
            rows, last = np.divmod(rows, len(self.words))
            columns.append(last)
            if order > 2:
                rows = self.orders[order - 2].keys[rows]
        return np.stack([rows, *reversed(columns)], axis=1)

    def log10(self, histories: Ids, words: Ids) -> NDArray[np.float64]:
        """Log10 probability of words after histories, float64 [events].

        Args:
            histories: int64 [events, length], the last word last; NONE before their beginning.
            words: int64 [events]; no NONE.
        """
        longest = min(histories.shape[1], len(self.orders) - 1)
        contexts = {n: self.rows(histories[:, -n:]) for n in range(1, longest + 1)}
        contexts[0] = np.zeros(len(words), np.int64)
        total = np.zeros(len(words))
        open_ = np.ones(len(words), bool)
        for length in range(longest, -1, -1):
            rows = self.extended(length + 1, contexts[length], words)
            found = open_ & (rows >= 0)
            total[found] += self.orders[length].log_prob[rows[found]]
            open_ &= ~found
            if length:
                left = open_ & (contexts[length] >= 0)
                total[left] += self.orders[length - 1].backoff[contexts[length][left]]
        return total

    def add_order(self, keys: Ids, log_prob: Floats, backoff: Floats) -> None:
        """The n-grams of the next length, in any order; those of length 1: all words."""
        if (keys[1:] < keys[:-1]).any():
            order = np.argsort(keys, kind="stable")
            keys, log_prob, backoff = keys[order], log_prob[order], backoff[order]
        self.orders.append(Order(keys, log_prob, backoff))


def load(path: Path) -> Backoff:
    """Read an ARPA file, gzipped or not.

    Takes some 40 bytes an n-gram while the longest are sorted.

    Raises:
        UserError: no file, damaged, or an n-gram of which a word or the context is not listed, or
            that is listed twice; more n-grams than there is memory for.
    """
    model, ids = Backoff([]), _Ids()
    with arpa.opened(path) as file:
        what = "language model read"
        blocks = tracked(file.blocks(), sum(file.counts), what=what, unit="n-grams", weight=len)
        for order, of_order in groupby(blocks, key=lambda block: block.order):
            try:
                parts = _empty(file.counts[order - 1])
            except MemoryError:
                size = f"{16e-9 * sum(file.counts):.1f} GB"
                raise file.fail(f"its {sum(file.counts)} n-grams take {size} of memory") from None
            done = 0
            for block in of_order:
                columns = block.columns()
                if order == 1:
                    ids.add(columns.words[0])
                rows = slice(done, done + len(block))
                parts.keys[rows] = _keys(model, ids, block, columns)
                parts.log_prob[rows] = columns.log_prob
                parts.backoff[rows] = np.where(np.isnan(columns.backoff), 0.0, columns.backoff)
                done += len(block)
            if order == 1:
                model = Backoff([word.decode() for word in ids.listed])
            if done:  # pruning may leave none of the longest: the model has one order less
                model.add_order(parts.keys, parts.log_prob, parts.backoff)
                _refuse_twice(file, model, ids)
    return model


def _refuse_twice(file: arpa.Arpa, model: Backoff, ids: _Ids) -> None:
    """No n-gram of the last order may be listed more than once."""
    keys, length = model.orders[-1].keys, len(model.orders)
    again = np.flatnonzero(keys[1:] == keys[:-1])
    if length == 1:  # the words' numbers as they came
        again = np.flatnonzero(ids.of(ids.listed) != keys)
    if len(again):
        (gram,) = model.spelled(length, keys[again[:1]]).tolist()
        raise file.fail(f"'{' '.join(model.words[word] for word in gram)}' is listed twice")


class _Ids(dict[bytes, int]):
    """Words in UTF-8, numbered as they come; all others are NONE."""

    def __init__(self) -> None:
        super().__init__()
        self.listed: list[bytes] = []

    def __missing__(self, word: bytes) -> int:
        return NONE

    def add(self, words: list[bytes]) -> None:
        """The next words."""
        self.update(zip(words, range(len(self.listed), len(self.listed) + len(words)), strict=True))
        self.listed += words

    def of(self, words: list[bytes]) -> Ids:
        """int64 [words]."""
        return np.fromiter(map(self.__getitem__, words), np.int64, len(words))


def _empty(count: int) -> Order:
    return Order(
        np.empty(count, np.int64), np.empty(count, np.float32), np.empty(count, np.float32)
    )


def _keys(model: Backoff, ids: _Ids, block: Block, columns: Columns) -> Ids:
    """Of the n-grams of a block; neighbours with the same context are looked up once."""
    last = ids.of(columns.words[-1])
    if block.order == 1:
        return np.arange(len(ids.listed) - len(last), len(ids.listed))
    before = np.stack([ids.of(column) for column in columns.words[:-1]], axis=1)
    new = np.ones(len(before), bool)
    new[1:] = (before[1:] != before[:-1]).any(1)
    contexts = model.rows(before[new])[np.cumsum(new) - 1]
    lost = np.flatnonzero((contexts < 0) | (last < 0))
    if len(lost):
        what = f"a word or the context of this {block.order}-gram is not listed"
        raise block.fail(what, block.line(int(lost[0])))
    return contexts * len(model.words) + last
