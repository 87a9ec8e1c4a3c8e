"""Perplexity of a text under an ARPA model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from hadpsgd.lm.arpa import BOS, EOS, UNK
from hadpsgd.lm.backoff import NONE, Backoff

_CHUNK = 10_000
"""Sentences that are scored together."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """Log10 probability of a text; words unknown to the model are counted and left out."""

    log10: float
    words: int
    sentences: int
    oov: int

    @property
    def perplexity(self) -> float:
        """Per word, sentence ends included."""
        events = self.words - self.oov + self.sentences
        return 10.0 ** (-self.log10 / events) if events else float("nan")


@dataclass(frozen=True)
class Events:
    """Words that are predicted.

    Args:
        histories: int64 [events, order - 1], ids of the words before, the last one last.
        words: int64 [events].
        known: bool [events]; a word that the model lacks is no event of it.
    """

    histories: NDArray[np.int64]
    words: NDArray[np.int64]
    known: NDArray[np.bool_]

    def log10(self, model: Backoff) -> NDArray[np.float64]:
        """Log10 probabilities of those that are known."""
        return model.log10(self.histories[self.known], self.words[self.known])


def events(model: Backoff, sentences: Iterable[list[str]]) -> Events:
    """What sentences consist of: their words and their ends, each after what stands before it."""
    width = len(model.orders) - 1
    begin = [NONE] * (width - 1) + [model.id(BOS)] if width else []
    histories: list[list[int]] = []
    words: list[int] = []
    known: list[bool] = []
    for sentence in sentences:
        ids = [model.id(word) for word in sentence] + [model.ids[EOS]]
        line = begin + ids
        histories += [line[i : i + width] for i in range(len(ids))]
        words += ids
        known += [word in model.ids and word != UNK for word in (*sentence, EOS)]
    shape = len(words), width
    return Events(np.array(histories, np.int64).reshape(shape), np.array(words), np.array(known))


def score(model: Backoff, sentences: Iterable[list[str]]) -> Score:
    """Score sentences, given as words."""
    log10, words, count, oov = 0.0, 0, 0, 0
    source = iter(sentences)
    while chunk := list(islice(source, _CHUNK)):
        found = events(model, chunk)
        count += len(chunk)
        words += len(found.words) - len(chunk)
        oov += int((~found.known).sum())
        log10 += float(found.log10(model).sum())
    return Score(log10=log10, words=words, sentences=count, oov=oov)
