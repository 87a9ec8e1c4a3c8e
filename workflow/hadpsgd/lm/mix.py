"""Linear interpolation of language models: weights by EM on a text, then one ARPA file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import kenlm
import numpy as np
from numpy.typing import NDArray

from hadpsgd.errors import UserError
from hadpsgd.lm import arpa
from hadpsgd.lm.arpa import BOS, IMPOSSIBLE, Ngram
from hadpsgd.lm.perplexity import load
from hadpsgd.lm.train import write

Words = tuple[str, ...]
_TINY = 1e-12


def event_probabilities(
    models: Sequence[kenlm.Model], sentences: Sequence[list[str]]
) -> NDArray[np.float64]:
    """float64 [events, models]: probability of every word and sentence end by each model.

    A word that a model lacks has probability 0 there; words that all lack are left out.
    """
    columns = []
    for model in models:
        scores = [score for words in sentences for score in model.full_scores(" ".join(words))]
        columns.append([0.0 if unknown else 10.0**value for value, _, unknown in scores])
    table = np.array(columns).T
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


@dataclass
class _Source:
    """A model that remembers the states of the histories asked last."""

    model: kenlm.Model
    known: frozenset[str]

    def state(self, history: Words) -> kenlm.State:
        """KenLM's state after a history."""
        state = kenlm.State()
        if history[:1] == (BOS,):
            self.model.BeginSentenceWrite(state)
            history = history[1:]
        else:
            self.model.NullContextWrite(state)
        for word in history:
            after = kenlm.State()
            self.model.BaseScore(state, word, after)
            state = after
        return state


def mix(paths: Mapping[str, Path], weights: Mapping[str, float], out: Path) -> None:
    """Write the interpolation of ARPA files as one: all their n-grams, back-offs made anew.

    For each n-gram, the probability is the weighted sum of what the models give it, by back-off
    where they lack it. Holds the n-grams in memory.

    Raises:
        UserError: a model cannot be read.
    """
    sources = [_Source(load(path), _vocabulary(path)) for path in paths.values()]
    shares = [weights[name] for name in paths]
    followers = _followers(paths.values())
    order = 1 + max(len(history) for history in followers)
    merged: dict[Words, float] = {}
    backoff: dict[Words, float] = {}

    def probability(history: Words, word: str) -> float:
        """Of the merged model, up to the orders made so far."""
        factor = 1.0
        while (*history, word) not in merged:
            if not history:
                return 0.0
            factor *= backoff.get(history, 1.0)
            history = history[1:]
        return factor * merged[(*history, word)]

    for length in range(order):
        histories = sorted(history for history in followers if len(history) == length)
        for history in histories:
            words = sorted(followers[history])
            values = _interpolated(sources, shares, history, words)
            if length:
                lower = sum(probability(history[1:], word) for word in words)
                left, below = 1.0 - sum(values), 1.0 - lower
                backoff[history] = left / below if left > _TINY and below > _TINY else 0.0
            for word, value in zip(words, values, strict=True):
                merged[(*history, word)] = value
    write(out, _counts(merged, order), _ngrams(merged, backoff))


def _interpolated(
    sources: Sequence[_Source], shares: Sequence[float], history: Words, words: Sequence[str]
) -> list[float]:
    totals = [0.0] * len(words)
    for source, share in zip(sources, shares, strict=True):
        state, after = source.state(history), kenlm.State()
        for i, word in enumerate(words):
            if word in source.known and word != BOS:
                totals[i] += share * 10.0 ** source.model.BaseScore(state, word, after)
    return totals


def _vocabulary(path: Path) -> frozenset[str]:
    words = set()
    for ngram in arpa.read(path):
        if len(ngram.words) > 1:
            break
        words.add(ngram.words[0])
    return frozenset(words)


def _followers(paths: Iterable[Path]) -> dict[Words, set[str]]:
    """For every history, the words that follow it in any model; histories are closed."""
    table: dict[Words, set[str]] = {}
    for path in paths:
        for ngram in arpa.read(path):
            table.setdefault(ngram.words[:-1], set()).add(ngram.words[-1])
    return table


def _counts(merged: Mapping[Words, float], order: int) -> list[int]:
    counts = [0] * order
    for words in merged:
        counts[len(words) - 1] += 1
    return counts


def _ngrams(merged: Mapping[Words, float], backoff: Mapping[Words, float]) -> Iterator[Ngram]:
    for words, value in merged.items():
        given = backoff.get(words)
        yield Ngram(words, _log10(value), None if given is None else _log10(given), 0)


def _log10(value: float) -> float:
    return math.log10(value) if value > 0.0 else IMPOSSIBLE


def mix_tuned(
    paths: Mapping[str, Path], sentences: Sequence[list[str]], out: Path
) -> dict[str, float]:
    """Tune weights on sentences, write the mixture, return the weights by name.

    Raises:
        UserError: the sentences share no word with the models.
    """
    events = event_probabilities([load(path) for path in paths.values()], sentences)
    if not len(events):
        raise UserError("no word of the development text is in any language model")
    weights = dict(zip(paths, tune_weights(events).tolist(), strict=True))
    mix(paths, weights, out)
    return weights
