"""An n-gram and a neural model side by side: what each says of sentences, and both together.

Together they are interpolated linearly, word by word: p = (1 - weight) p_ngram + weight p_neural.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from hadpsgd.lm import perplexity
from hadpsgd.lm.arpa import EOS
from hadpsgd.lm.backoff import Backoff
from hadpsgd.lm.neural.events import Events, interpolated
from hadpsgd.lm.neural.model import LstmLm
from hadpsgd.lm.neural.score import log_probs, perplexity_of
from hadpsgd.lm.neural.words import Words

_CHUNK = 4096
"""Sentences that are scored together."""


@dataclass(frozen=True)
class Models:
    """Both models; `words` are those of the neural one."""

    ngram: Backoff
    neural: LstmLm
    words: Words

    def events(self, sentences: Sequence[Sequence[str]]) -> Events:
        """What both say of sentences."""
        asked = perplexity.events(self.ngram, [list(sentence) for sentence in sentences])
        listed = asked.words >= 0
        ngram = np.full(len(asked.words), np.nan)
        log10 = self.ngram.log10(asked.histories[listed], asked.words[listed])
        ngram[listed] = math.log(10.0) * log10
        rows = log_probs(self.neural, [self.words.numbers(sentence) for sentence in sentences])
        first = np.cumsum([0, *(len(row) for row in rows)])
        neural = np.concatenate([np.zeros(0), *rows])
        own = [word in self.words for each in sentences for word in (*each, EOS)]
        return Events(ngram, neural, asked.known & np.array(own, bool), first)

    def perplexities(
        self, sentences: Iterable[Sequence[str]], weights: Sequence[float]
    ) -> dict[float, float]:
        """Of a text, per word with sentence ends, under each weight of the neural model; NaN of an
        empty one. Words that one of the models lacks are left out."""
        totals, count = np.zeros(len(weights)), 0
        source = iter(sentences)
        while chunk := list(islice(source, _CHUNK)):
            found = self.events(chunk)
            ngram, neural = found.ngram[found.known], found.neural[found.known]
            totals += [interpolated(ngram, neural, weight).sum() for weight in weights]
            count += len(ngram)
        return {
            weight: perplexity_of(total, count=count) if count else math.nan
            for weight, total in zip(weights, totals.tolist(), strict=True)
        }
