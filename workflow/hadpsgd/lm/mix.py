"""Linear interpolation of language models: weights by EM on a text, then one ARPA file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd.distinct import distinct
from hadpsgd.errors import UserError
from hadpsgd.lm.arpa import BOS
from hadpsgd.lm.backoff import NONE, Backoff, Ids, load
from hadpsgd.lm.perplexity import events
from hadpsgd.lm.train import write
from hadpsgd.lm.whole import BLOCK, add_order, ngrams
from hadpsgd.progress import Progress


def event_probabilities(
    models: Sequence[Backoff], sentences: Sequence[list[str]]
) -> NDArray[np.float64]:
    """float64 [events, models]: probability of every word and sentence end by each model.

    A word that a model lacks has probability 0 there; words that all lack are left out.
    """
    columns = []
    for model in models:
        found = events(model, sentences)
        columns.append(np.zeros(len(found.words)))
        columns[-1][found.known] = 10.0 ** found.log10(model)
    table = np.stack(columns, axis=1)
    return table[table.sum(1) > 0]


def tune_weights(events: NDArray[np.float64], iterations: int = 500) -> NDArray[np.float64]:
    """float64 [models]: weights that make the events most likely (EM); they add up to 1."""
    weights = np.full(events.shape[1], 1.0 / events.shape[1])
    likelihood = -np.inf
    for _ in range(iterations):
        parts = events * weights
        totals = parts.sum(1)
        weights = (parts / totals[:, None]).mean(0)
        now = float(np.log(totals).mean())
        if now - likelihood < 1e-9:
            break
        likelihood = now
    return weights


class _Source:
    """A model in terms of the common vocabulary."""

    def __init__(self, model: Backoff, share: float, common: Backoff) -> None:
        self.model = model
        self.share = share
        self.to_common = np.array([common.ids[word] for word in model.words])
        self._size = len(common.words)
        self.own = np.array([*map(model.id, common.words), NONE])
        """By common id; for NONE itself NONE."""
        self.knows = np.array([word in model.ids and word != BOS for word in common.words])
        self._rows = np.zeros(0, np.int64)
        """By row of its n-grams of the length that was asked last: rows in the mixture."""

    def keys(self, length: int) -> Ids:
        """Its n-grams of a length, as keys of the mixture, in the order of its rows; maybe none."""
        if length > len(self.model.orders):
            return np.empty(0, np.int64)
        contexts, last = np.divmod(self.model.orders[length - 1].keys, len(self.model.words))
        last = self.to_common[last]
        return last if length == 1 else self._rows[contexts] * self._size + last

    def found(self, length: int, keys: Ids) -> None:
        """The mixture's n-grams of a length are these, ascending."""
        self._rows = np.searchsorted(keys, self.keys(length))

    def part(self, grams: Ids) -> NDArray[np.float64]:
        """What it adds to the probabilities of n-grams, by back-off where it lacks them."""
        found = np.zeros(len(grams))
        known = self.knows[grams[:, -1]]
        own = self.own[grams[known]]
        found[known] = self.share * 10.0 ** self.model.log10(own[:, :-1], own[:, -1])
        return found


def merge(models: Sequence[Backoff], shares: Sequence[float], block: int = BLOCK) -> Backoff:
    """The interpolation as one back-off model: all their n-grams, back-offs made anew.

    For each n-gram, the probability is the weighted sum of what the models give it, by back-off
    where they lack it. `block`: n-grams at a time; the result is the same.
    """
    merged = Backoff(sorted({word for model in models for word in model.words}))
    sources = [_Source(m, share, merged) for m, share in zip(models, shares, strict=True)]
    longest = max(len(model.orders) for model in models)
    # at most: they have n-grams in common
    most = sum(len(order.keys) for model in models for order in model.orders)
    progress = Progress("language models mixed", most, "n-grams")

    def values(_: slice, grams: Ids) -> NDArray[np.float64]:
        total: NDArray[np.float64] = np.sum([source.part(grams) for source in sources], axis=0)
        return total

    for length in range(1, 1 + longest):
        keys = distinct(np.concatenate([source.keys(length) for source in sources]))
        for source in sources:
            source.found(length, keys)
        add_order(merged, keys, values, progress, block)
    return merged


def mix_tuned(
    paths: Mapping[str, Path], sentences: Sequence[list[str]], out: Path
) -> dict[str, float]:
    """Tune weights on sentences, write the mixture, return the weights by name.

    Holds the n-grams in memory, some 16 bytes each, and some 60 while the longest are joined.

    Raises:
        UserError: a model cannot be read, or the sentences share no word with the models.
    """
    models = [load(path) for path in paths.values()]
    table = event_probabilities(models, sentences)
    if not len(table):
        raise UserError("no word of the development text is in any language model")
    weights = tune_weights(table).tolist()
    merged = merge(models, weights)
    write(out, [len(order.keys) for order in merged.orders], ngrams(merged))
    return dict(zip(paths, weights, strict=True))
