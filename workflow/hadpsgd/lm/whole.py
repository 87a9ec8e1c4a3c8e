"""Back-off models out of n-grams with probabilities: back-offs make them add up to 1."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hadpsgd.lm.arpa import IMPOSSIBLE, Ngram
from hadpsgd.lm.backoff import Backoff, Ids

_NOTHING = 1e-6
"""What ARPA files' seven decimals leave over where every word is listed."""


def add_order(model: Backoff, grams: Ids, values: NDArray[np.float64]) -> None:
    """Add the n-grams of the next length and give their contexts back-offs.

    Args:
        model: has all shorter n-grams, among them the contexts of these.
        grams: int64 [n-grams, length], of words; those of length 1: all words, in their order.
        values: float64 [n-grams], their probabilities.
    """
    contexts = np.zeros(len(grams), np.int64)
    if model.orders:
        contexts = model.rows(grams[:, :-1])
        _back_off(model, grams, contexts, values)
    keys = contexts * len(model.words) + grams[:, -1]
    model.add_order(keys, _log10(values), np.zeros(len(grams)))


def _back_off(model: Backoff, grams: Ids, contexts: Ids, values: NDArray[np.float64]) -> None:
    """Give the contexts of n-grams their back-offs: what is left over what is left below."""
    below = 10.0 ** model.log10(grams[:, 1:-1], grams[:, -1])
    backoff = model.orders[-1].backoff
    left, left_below = (1.0 - np.bincount(contexts, part, len(backoff)) for part in (values, below))
    given = (left > 0.0) & (left_below > _NOTHING)
    used = np.unique(contexts)
    backoff[used] = _log10(np.where(given, left, 0.0) / np.where(given, left_below, 1.0))[used]


def _log10(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.log10(values, out=np.full(len(values), IMPOSSIBLE), where=values > 0.0)


def ngrams(model: Backoff) -> Iterator[Ngram]:
    """In the order of an ARPA file; back-offs only where n-grams follow."""
    for length, order in enumerate(model.orders, 1):
        followed = np.zeros(len(order.keys), bool)
        if length < len(model.orders):
            followed[model.orders[length].keys // len(model.words)] = True
        for row, gram in enumerate(model.grams(length).tolist()):
            backoff = float(order.backoff[row]) if followed[row] else None
            words = tuple(model.words[word] for word in gram)
            yield Ngram(words=words, log_prob=float(order.log_prob[row]), backoff=backoff, line=0)
