"""A back-off n-gram model in arrays: probabilities of many words at once.

The n-grams of an order are sorted by one number (the row of their context among the n-grams below,
times the size of the vocabulary, plus their last word), so one is found by a binary search for each
of its words. 16 bytes an n-gram are held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hadpsgd.errors import UserError
from hadpsgd.lm import arpa

Ids = NDArray[np.int64]
Floats = NDArray[np.floating[Any]]
NONE = -1
"""Instead of a word: none there, or one that the model lacks. Instead of a row: not listed."""
_CHUNK = 1 << 18


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
        rows = np.arange(len(self.orders[length - 1].keys))
        columns = []
        for order in range(length, 1, -1):
            rows, last = np.divmod(self.orders[order - 1].keys[rows], len(self.words))
            columns.append(last)
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
        order = np.argsort(keys, kind="stable")
        self.orders.append(Order(keys[order], log_prob[order], backoff[order]))


def load(path: Path) -> Backoff:
    """Read an ARPA file, gzipped or not.

    Raises:
        UserError: no file, damaged, or an n-gram of which a word or the context is not listed.
    """
    model = Backoff([])
    for length, ngrams in groupby(arpa.read(path), key=lambda ngram: len(ngram.words)):
        if length == 1:
            listed = list(ngrams)
            model = Backoff([ngram.words[0] for ngram in listed])
            parts = [_arrays(listed, np.arange(len(listed)))]
        else:
            parts = []
            while chunk := list(islice(ngrams, _CHUNK)):
                parts.append(_arrays(chunk, _keys(model, chunk, path)))
        model.add_order(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    return model


def _keys(model: Backoff, ngrams: Sequence[arpa.Ngram], path: Path) -> Ids:
    grams = np.array([[model.ids.get(word, NONE) for word in ngram.words] for ngram in ngrams])
    contexts = model.rows(grams[:, :-1])
    lost = np.flatnonzero((contexts < 0) | (grams[:, -1] < 0))
    if len(lost):
        raise UserError(
            f"a word or the context of this {grams.shape[1]}-gram is not listed",
            where=f"{path}:{ngrams[lost[0]].line}",
            fix="Make the language model again",
        )
    return contexts * len(model.words) + grams[:, -1]


def _arrays(ngrams: Sequence[arpa.Ngram], keys: Ids) -> tuple[Ids, Floats, Floats]:
    log_prob = np.array([ngram.log_prob for ngram in ngrams], np.float32)
    backoff = np.array([ngram.backoff or 0.0 for ngram in ngrams], np.float32)
    return keys, log_prob, backoff
