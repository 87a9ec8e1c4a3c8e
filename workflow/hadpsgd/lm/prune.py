"""Entropy pruning of an ARPA file, for a small first-pass graph.

Source: Stolcke, "Entropy-based pruning of backoff language models" (1998), as in SRILM's
NgramLM.cc: an n-gram goes where that changes the model's perplexity by less than a threshold,
relatively, and no longer one that stays needs it as a context.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd.lm.arpa import BOS, EOS
from hadpsgd.lm.backoff import Backoff, Ids, load
from hadpsgd.lm.train import write
from hadpsgd.lm.whole import add_order, ngrams

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


def pruned_model(model: Backoff, threshold: float) -> Backoff:
    """The model without the n-grams that matter less than a threshold; back-offs made anew."""
    stays: list[NDArray[np.bool_]] = []
    needed = np.zeros(len(model.orders[-1].keys), bool)
    for length in range(len(model.orders), 1, -1):
        kept = needed | (_loss(model, length) >= threshold)
        needed = np.zeros(len(model.orders[length - 2].keys), bool)
        needed[model.orders[length - 1].keys[kept] // len(model.words)] = True
        stays.append(kept)
    pruned = Backoff(model.words)
    add_order(pruned, model.grams(1), 10.0 ** model.orders[0].log_prob.astype(np.float64))
    for length, kept in enumerate(reversed(stays), 2):
        if kept.any():
            log_prob = model.orders[length - 1].log_prob[kept].astype(np.float64)
            add_order(pruned, model.grams(length)[kept], 10.0**log_prob)
    return pruned


def _loss(model: Backoff, length: int) -> NDArray[np.float64]:
    """float64 [n-grams of a length]: the relative change of perplexity without each of them."""
    order, below = model.orders[length - 1], model.orders[length - 2]
    grams = model.grams(length)
    contexts = order.keys // len(model.words)
    log_prob = order.log_prob.astype(np.float64)
    lower = model.log10(grams[:, 1:-1], grams[:, -1])
    given, given_below = 10.0**log_prob, 10.0**lower
    count = len(below.keys)
    left = np.maximum(1.0 - np.bincount(contexts, given, count), 0.0)[contexts]
    left_below = np.maximum(1.0 - np.bincount(contexts, given_below, count), 0.0)[contexts]
    before = np.where(left > 0.0, below.backoff[contexts].astype(np.float64), 0.0)
    after = _log10(left + given) - _log10(left_below + given_below)
    change = given * (lower + after - log_prob) + left * (after - before)
    often = 10.0 ** _joint(model, model.grams(length - 1))[contexts]
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
