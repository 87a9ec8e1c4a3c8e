"""Choice of language model weight, word penalty and neural weight on the development set.

Errors choose, but for the neural weight: few errors tell such weights apart by chance only, where
the perplexity of the same text does it well. So of the weights whose errors are within one
standard error of the fewest the one with the least perplexity is taken (the rule of one standard
error: Breiman et al., Classification and Regression Trees, 1984, section 3.4.3).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd.config.decoding import Scoring
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.decoding.lattice import Scaling
from hadpsgd.decoding.nbest_list import NbestList
from hadpsgd.scoring.align import Counts
from hadpsgd.scoring.hypotheses import Words, texts
from hadpsgd.scoring.nist import align_texts
from hadpsgd.scoring.reference import TextFilter
from hadpsgd.scoring.rescoring import Rescoring


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A language model weight (inverse acoustic scale), a penalty a word, whether words are those
    of least expected errors in place of the best path's, and the share of the neural language
    model in words' probabilities."""

    lm_weight: float
    word_penalty: float
    minimum_bayes_risk: bool = False
    neural_weight: float = 0.0

    def scaling(self, words: Words) -> Scaling:
        """As lattices of these words want it."""
        return Scaling(
            acoustic_scale=1.0 / self.lm_weight, word_penalty=self.word_penalty, inside=words.inside
        )


def settings_of(config: Scoring, neural_weights: Sequence[float] = (0.0,)) -> list[Setting]:
    """All combinations that the config names."""
    return [
        Setting(
            lm_weight=weight,
            word_penalty=penalty,
            minimum_bayes_risk=config.minimum_bayes_risk,
            neural_weight=neural,
        )
        for weight in config.lm_weights
        for penalty in config.word_penalties
        for neural in neural_weights
    ]


@dataclass(frozen=True)
class Tried:
    """What settings give on a development set.

    counts: of each setting. errors: int64 [settings, utterances].
    """

    settings: Sequence[Setting]
    counts: Sequence[Counts]
    errors: NDArray[np.int64]

    def standard_error(self, first: int, second: int) -> float:
        """Of the difference of two settings' errors, if utterances are drawn anew: of the sum of
        the paired differences."""
        differences = self.errors[first] - self.errors[second]
        spread = differences.std(ddof=1) if len(differences) > 1 else 0.0
        return math.sqrt(len(differences)) * float(spread)


def tune(
    folder: Path,
    data: DataDir,
    words: Words,
    settings: Sequence[Setting],
    lists: Iterator[tuple[str, NbestList]] | None = None,
) -> Tried:
    """Every setting on a decoded set; utterances without lattice count as deleted.

    All settings have minimum Bayes risk, or none. `lists`: where one has a neural weight.
    """
    risk = any(setting.minimum_bayes_risk for setting in settings)
    totals = [Counts() for _ in settings]
    columns: list[list[int]] = []
    missing = set(data.utterances)
    scalings = [setting.scaling(words) for setting in settings]
    rules = TextFilter(data, words.filters)

    def count(utterance: str, hyps: Sequence[str]) -> None:
        ref = rules.ref(data.utterances[utterance].text)
        found = {
            hyp: Counts.of(align_texts(ref, rules.hyp(hyp), rules.options, utterance))
            for hyp in sorted(set(hyps))
        }
        columns.append([found[hyp].errors for hyp in hyps])
        totals[:] = [total + found[hyp] for total, hyp in zip(totals, hyps, strict=True)]

    neural = Rescoring([setting.neural_weight for setting in settings], lists) if lists else None
    for utterance, hyps in texts(folder, data, words, scalings, risk=risk, neural=neural):
        missing.discard(utterance)
        count(utterance, hyps)
    for utterance in missing:
        count(utterance, [""] * len(settings))
    return Tried(settings, totals, np.array(columns, np.int64).reshape(-1, len(settings)).T)


def choose(tried: Tried, perplexities: Mapping[float, float] | None = None) -> int:
    """The setting with the fewest errors; with perplexities of neural weights, the best setting of
    the weight with the least one, of those that are within one standard error of the fewest.

    Raises:
        KeyError: a neural weight without perplexity.
    """
    fewest = _fewest(tried, range(len(tried.settings)))
    if perplexities is None:
        return fewest
    weights = sorted({setting.neural_weight for setting in tried.settings})
    within = []
    for weight in weights:
        own = [i for i, s in enumerate(tried.settings) if s.neural_weight == weight]
        best = fewest if fewest in own else _fewest(tried, own)
        more = tried.counts[best].errors - tried.counts[fewest].errors
        if more <= tried.standard_error(best, fewest):
            within.append(best)
    return min(within, key=lambda i: perplexities[tried.settings[i].neural_weight])


def _fewest(tried: Tried, of: Sequence[int]) -> int:
    """The setting with the fewest errors; of equals the one nearest to the middle of all equals."""
    settings = tried.settings
    least = min(tried.counts[i].errors for i in of)
    equal = [i for i in of if tried.counts[i].errors == least]
    weight = sum(settings[i].lm_weight for i in equal) / len(equal)
    penalty = sum(settings[i].word_penalty for i in equal) / len(equal)
    neural = sum(settings[i].neural_weight for i in equal) / len(equal)

    def distance(i: int) -> tuple[float, float, float, int]:
        setting = settings[i]
        far = abs(setting.lm_weight - weight), abs(setting.word_penalty - penalty)
        return *far, abs(setting.neural_weight - neural), i

    return min(equal, key=distance)
