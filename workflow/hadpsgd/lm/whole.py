"""Back-off models out of n-grams with probabilities: back-offs make them add up to 1."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from hadpsgd.lm.arpa import IMPOSSIBLE, Ngram
from hadpsgd.lm.backoff import Backoff, Ids
from hadpsgd.progress import Progress

BLOCK = 1 << 16
"""n-grams that are worked on together: some 20 MB."""
_NOTHING = 1e-6
"""What ARPA files' seven decimals leave over where every word is listed."""

Values = Callable[[slice, Ids], NDArray[np.float64]]
"""Probabilities, float64 [n-grams], of the n-grams in some rows, int64 [n-grams, length]."""


def blocks(size: int, *, block: int = BLOCK) -> Iterator[slice]:
    """All rows, some at a time."""
    return (slice(start, min(start + block, size)) for start in range(0, size, block))


def add_order(
    model: Backoff, keys: Ids, values: Values, progress: Progress, block: int = BLOCK
) -> None:
    """Add the n-grams of the next length and give their contexts back-offs.

    Their contexts' probabilities are summed one after the other, so that the size of a block does
    not matter.

    Args:
        model: has all shorter n-grams, among them the contexts of these.
        keys: int64 [n-grams], ascending: row of the context * vocabulary + last word; of length 1
            all words.
        values: their probabilities, asked once for each row.
        progress: counts them.
        block: n-grams at a time.
    """
    length, size = len(model.orders) + 1, len(keys)
    log_prob = np.empty(size, np.float32)
    taken = np.zeros((2, len(model.orders[-1].keys) if model.orders else 0))
    for rows in blocks(size, block=block):
        grams = model.spelled(length, keys[rows])
        found = values(rows, grams)
        log_prob[rows] = _log10(found)
        if length > 1:
            contexts = keys[rows] // len(model.words)
            np.add.at(taken[0], contexts, found)
            np.add.at(taken[1], contexts, 10.0 ** model.log10(grams[:, 1:-1], grams[:, -1]))
        progress.add(len(grams))
    if length > 1:
        _back_off(model, keys, taken)
    model.add_order(keys, log_prob, np.zeros(size, np.float32))


def _back_off(model: Backoff, keys: Ids, taken: NDArray[np.float64]) -> None:
    """Give the contexts of n-grams their back-offs: what is left over what is left below.

    `taken`: float64 [2, contexts], what their n-grams take, and take below.
    """
    used = _followed(model, len(model.orders), keys)
    left, left_below = 1.0 - taken[:, used]
    given = (left > 0.0) & (left_below > _NOTHING)
    weights = np.where(given, left, 0.0) / np.where(given, left_below, 1.0)
    model.orders[-1].backoff[used] = _log10(weights)


def _followed(model: Backoff, length: int, longer: Ids) -> NDArray[np.bool_]:
    """bool [n-grams of a length]: which are contexts of n-grams with these keys."""
    found = np.zeros(len(model.orders[length - 1].keys), bool)
    found[longer // len(model.words)] = True
    return found


def _log10(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.log10(values, out=np.full(len(values), IMPOSSIBLE), where=values > 0.0)


def ngrams(model: Backoff, block: int = BLOCK) -> Iterator[Ngram]:
    """In the order of an ARPA file; back-offs only where n-grams follow."""
    for length, order in enumerate(model.orders, 1):
        size = len(order.keys)
        longer = model.orders[length].keys if length < len(model.orders) else order.keys[:0]
        with_backoff = _followed(model, length, longer)
        for rows in blocks(size, block=block):
            columns = zip(
                model.spelled(length, order.keys[rows]).tolist(),
                order.log_prob[rows].tolist(),
                order.backoff[rows].tolist(),
                with_backoff[rows].tolist(),
                strict=True,
            )
            for gram, log_prob, backoff, has in columns:
                words = tuple([model.words[word] for word in gram])
                yield Ngram(
                    words=words, log_prob=log_prob, backoff=backoff if has else None, line=0
                )
