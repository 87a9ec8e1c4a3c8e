"""Whether two runs differ: matched-pairs test (MAPSSWE) and bootstrap over speakers or sentences.

Sources: Gillick and Cox, ICASSP 1989; Pallett et al. 1990 (segments bounded by two words that both
systems got right); Bisani and Ney, ICASSP 2004 (bootstrap of the WER and of its difference).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hadpsgd.scoring.align import Counts, Edit
from hadpsgd.scoring.nist import Sentence

Unit = Literal["speakers", "sentences"]

_GOOD = 2  # words right in both that end a segment
_SPEAKERS = 5  # fewer say too little about how speakers differ


@dataclass(frozen=True, kw_only=True)
class Mapsswe:
    """Matched pairs: segments that hold errors, their mean difference, its z and p (two-sided).

    mean: errors of the first run minus those of the second, a segment.
    """

    segments: int
    mean: float
    z: float
    p: float


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A value with the bounds of its bootstrap interval."""

    value: float
    low: float
    high: float


def mapsswe(first: Sequence[Sentence], second: Sequence[Sentence]) -> Mapsswe:
    """Matched-pairs sentence-segment word error test of two runs on the same references.

    Raises:
        ValueError: the runs were not scored on the same reference words.
    """
    pairs: list[tuple[int, int]] = []
    for one, two in _matched(first, second):
        pairs += _segments(_by_reference(one.edits), _by_reference(two.edits))
    differences = np.array([a - b for a, b in pairs], np.float64)
    count = len(differences)
    mean = float(differences.mean()) if count else 0.0
    spread = float(differences.std(ddof=1)) if count > 1 else 0.0
    if spread == 0.0:
        # nothing to tell apart, or every segment differs alike
        return Mapsswe(segments=count, mean=mean, z=0.0, p=1.0 if mean == 0.0 or count < 2 else 0.0)
    z = mean / (spread / math.sqrt(count))
    return Mapsswe(segments=count, mean=mean, z=z, p=math.erfc(abs(z) / math.sqrt(2.0)))


def _matched(
    first: Sequence[Sentence], second: Sequence[Sentence]
) -> list[tuple[Sentence, Sentence]]:
    others = {sentence.name: sentence for sentence in second}
    if len(others) != len(first) or any(sentence.name not in others for sentence in first):
        raise ValueError("the runs were scored on different sets")
    return [(sentence, others[sentence.name]) for sentence in first]


def _by_reference(edits: Sequence[Edit]) -> list[tuple[int, bool]]:
    """For the gap before each reference word, the word, ..., the last gap: (errors, is a word).

    Alternations may leave the runs with other numbers of reference words; words that are only
    in one are then part of a gap.
    """
    slots: list[tuple[int, bool]] = [(0, False)]
    for edit in edits:
        if edit.ref is None:
            errors, _ = slots[-1]
            slots[-1] = (errors + (edit.kind != "C"), False)
        else:
            slots += [(int(edit.kind != "C"), True), (0, False)]
    return slots


def _segments(
    first: Sequence[tuple[int, bool]], second: Sequence[tuple[int, bool]]
) -> list[tuple[int, int]]:
    """Errors of both runs in each segment that has any.

    A segment ends with two words, one after another, that both have right.
    """
    if len(first) != len(second):  # an alternation was read differently: one segment
        totals = (sum(e for e, _ in first), sum(e for e, _ in second))
        return [totals] if any(totals) else []
    segments: list[tuple[int, int]] = []
    errors, good = [0, 0], 0
    for (a, is_word), (b, _) in zip(first, second, strict=True):
        errors[0] += a
        errors[1] += b
        good = 0 if a or b else good + is_word
        if good >= _GOOD and any(errors):
            segments.append((errors[0], errors[1]))
            errors = [0, 0]
    return segments + ([(errors[0], errors[1])] if any(errors) else [])


def bootstrap(
    sentences: Sequence[Sentence], *, seed: int = 0, draws: int = 10_000, level: float = 0.95
) -> Interval:
    """WER in percent with its interval: speakers are drawn with replacement.

    Where a set has fewer than five speakers, sentences are drawn instead (see `unit`).
    """
    errors, words = _units(sentences, unit(sentences))
    samples = _draw(len(words), seed, draws)
    rates = 100.0 * errors[samples].sum(1) / np.maximum(words[samples].sum(1), 1)
    return _interval(100.0 * errors.sum() / max(words.sum(), 1), rates, level)


def bootstrap_difference(
    first: Sequence[Sentence],
    second: Sequence[Sentence],
    *,
    seed: int = 0,
    draws: int = 10_000,
    level: float = 0.95,
) -> Interval:
    """WER of the first run minus that of the second, in percent, with its interval.

    The same speakers (or sentences) are drawn for both.

    Raises:
        ValueError: the runs were scored on different sets.
    """
    pairs = _matched(first, second)
    drawn = unit(first)
    mine, my_words = _units([a for a, _ in pairs], drawn)
    other, other_words = _units([b for _, b in pairs], drawn)
    samples = _draw(len(my_words), seed, draws)

    def rate(errors: NDArray[np.float64], words: NDArray[np.float64]) -> NDArray[np.float64]:
        return 100.0 * errors[samples].sum(1) / np.maximum(words[samples].sum(1), 1)

    value = 100.0 * (mine.sum() / max(my_words.sum(), 1) - other.sum() / max(other_words.sum(), 1))
    return _interval(float(value), rate(mine, my_words) - rate(other, other_words), level)


def unit(sentences: Sequence[Sentence]) -> Unit:
    """What the bootstrap draws from a set: speakers, or sentences of too few speakers."""
    enough = len({sentence.speaker for sentence in sentences}) >= _SPEAKERS
    return "speakers" if enough else "sentences"


def _units(
    sentences: Sequence[Sentence], drawn: Unit
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Errors and words of every unit, units in sorted order."""
    table: dict[str, Counts] = {}
    for sentence in sentences:
        key = sentence.speaker if drawn == "speakers" else sentence.name
        table[key] = table.get(key, Counts()) + sentence.counts
    counts = [table[key] for key in sorted(table)]
    return (
        np.array([c.errors for c in counts], np.float64),
        np.array([c.words for c in counts], np.float64),
    )


def _draw(size: int, seed: int, draws: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, size, (draws, size))


def _interval(value: float, samples: NDArray[np.float64], level: float) -> Interval:
    low, high = np.quantile(samples, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value=float(value), low=float(low), high=float(high))
