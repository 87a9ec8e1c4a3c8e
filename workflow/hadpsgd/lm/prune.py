"""Entropy pruning of an ARPA file, for a small first-pass graph.

Source: Stolcke, "Entropy-based pruning of backoff language models" (1998), as in SRILM's
NgramLM.cc: an n-gram goes where that changes the model's perplexity by less than a threshold,
relatively, and no longer one that stays needs it as a context.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd.lm.arpa import BOS, EOS
from hadpsgd.lm.backoff import Backoff, Floats, Ids, load
from hadpsgd.lm.train import write
from hadpsgd.lm.whole import BLOCK, add_order, ngrams
from hadpsgd.progress import Progress

_LEAST = 1e-99
"""Instead of a probability of 0, or less by rounding, where a logarithm is taken."""


def prune(path: Path, threshold: float, out: Path) -> None:
    """Drop n-grams whose loss changes perplexity by less than `threshold`, relatively.

    Holds the n-grams in memory.

    Raises:
        UserError: the model cannot be read.
    """
    pruned = pruned_model(load(path), threshold)
    kept = [len(order.keys) for order in pruned.orders]
    write(out, kept, ngrams(pruned))
    print(f"first pass: {kept} n-grams by order", file=sys.stderr)
    if len(kept) == 1:
        print(f"warning: a threshold of {threshold:g} leaves no 2-gram", file=sys.stderr)


def pruned_model(model: Backoff, threshold: float, *, block: int = BLOCK) -> Backoff:
    """The model without the n-grams that matter less than a threshold; back-offs made anew.

    Args:
        model: a back-off model.
        threshold: of the relative change of perplexity.
        block: n-grams at a time, about; the result is the same.
    """
    sizes = [len(order.keys) for order in model.orders]
    progress = Progress("language model pruned", 2 * sum(sizes) - sizes[0], "n-grams")
    stays = [np.ones(sizes[0], bool)]
    needed = np.zeros(sizes[-1], bool)
    for length in range(len(sizes), 1, -1):
        for rows in _of_whole_contexts(model, length, block):
            needed[rows] |= _loss(model, length, rows) >= threshold
            progress.add(rows.stop - rows.start)
        stays.insert(1, needed)
        below = np.zeros(sizes[length - 2], bool)
        below[model.orders[length - 1].keys[needed] // len(model.words)] = True
        needed = below
    return _kept(model, stays, progress, block)


def _kept(
    model: Backoff, stays: list[NDArray[np.bool_]], progress: Progress, block: int
) -> Backoff:
    """The model with those n-grams alone; of each that stays, the context does."""
    pruned = Backoff(model.words)
    new_rows = np.arange(len(model.words))
    for order, kept in zip(model.orders, stays, strict=True):
        if not kept.any():
            break
        keys, log_prob = order.keys[kept], order.log_prob[kept]
        if pruned.orders:
            contexts, last = np.divmod(keys, len(model.words))
            keys = new_rows[contexts] * len(model.words) + last
        add_order(pruned, keys, partial(_given, log_prob), progress, block)
        new_rows = np.cumsum(kept) - 1
    return pruned


def _given(log_prob: Floats, rows: slice, _: Ids) -> NDArray[np.float64]:
    values: NDArray[np.float64] = 10.0 ** log_prob[rows].astype(np.float64)
    return values


def _of_whole_contexts(model: Backoff, length: int, block: int) -> Iterator[slice]:
    """All n-grams of a length; those of one context are together, being neighbours."""
    keys = model.orders[length - 1].keys
    start = 0
    while start < len(keys):
        last = keys[min(start + block, len(keys)) - 1] // len(model.words)
        stop = int(np.searchsorted(keys, (last + 1) * len(model.words)))
        yield slice(start, stop)
        start = stop


def _loss(model: Backoff, length: int, rows: slice) -> NDArray[np.float64]:
    """float64 [rows]: the relative change of perplexity without each of those n-grams.

    `rows`: of a length, all of each context.
    """
    order, below = model.orders[length - 1], model.orders[length - 2]
    grams = model.spelled(length, order.keys[rows])
    contexts, place = np.unique(order.keys[rows] // len(model.words), return_inverse=True)
    log_prob = order.log_prob[rows].astype(np.float64)
    lower = model.log10(grams[:, 1:-1], grams[:, -1])
    given, given_below = 10.0**log_prob, 10.0**lower
    left = np.maximum(1.0 - np.bincount(place, given), 0.0)[place]
    left_below = np.maximum(1.0 - np.bincount(place, given_below), 0.0)[place]
    before = np.where(left > 0.0, below.backoff[contexts[place]].astype(np.float64), 0.0)
    after = _log10(left + given) - _log10(left_below + given_below)
    change = given * (lower + after - log_prob) + left * (after - before)
    often = 10.0 ** _joint(model, model.spelled(length - 1, below.keys[contexts]))[place]
    return 10.0 ** (-often * change) - 1.0


def _joint(model: Backoff, grams: Ids) -> NDArray[np.float64]:
    """float64 [n-grams]: log10 of how often each is expected; <s> is as frequent as </s>."""
    first = np.where(grams[:, 0] == model.id(BOS), model.id(EOS), grams[:, 0])
    total = model.orders[0].log_prob[first].astype(np.float64)
    for place in range(1, grams.shape[1]):
        total += model.log10(grams[:, :place], grams[:, place])
    return total


def _log10(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.log10(np.maximum(values, _LEAST))
