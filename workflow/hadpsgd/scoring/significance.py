"""Whether two runs differ: matched-pairs test (MAPSSWE) and bootstrap over speakers or sentences.

A row is several runs that are trained alike but for their seed; one run is a row of one. Its errors
are the mean of its members' in whatever piece of speech is looked at, so all members count and no
sentence is counted twice.

Sources: Gillick and Cox, ICASSP 1989; Pallett et al. 1990 (segments bounded by two words that both
systems got right); Bisani and Ney, ICASSP 2004 (bootstrap of the WER and of its difference).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hadpsgd.scoring.align import Counts, Edit
from hadpsgd.scoring.nist import Sentence

Unit = Literal["speakers", "sentences"]
Row = Sequence[Sequence[Sentence]]
"""The scored sentences of each member."""
Counted = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Errors and words of every unit."""

_GOOD = 2  # words right in both that end a segment
_ALIKE = 1e-9  # mean errors of members that differ by rounding alone
_AT_ONCE = 2**20  # numbers that are drawn at once: 8 MiB, with any number of units
_SPEAKERS = 5  # fewer say too little about how speakers differ


@dataclass(frozen=True, kw_only=True)
class Mapsswe:
    """Matched pairs: segments that hold errors, their mean difference, its z and p (two-sided).

    mean: errors of the first run minus those of the second, a segment.
    p: of z; where all segments differ alike, which leaves no z (it is 0), of the sign test.
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
    return mapsswe_of_rows([first], [second])


def mapsswe_of_rows(first: Row, second: Row) -> Mapsswe:
    """The same of two rows: a segment ends with two words that all their members have right.

    Raises:
        ValueError: the runs were not scored on the same reference words.
    """
    segments: list[tuple[int, ...]] = []
    for sentences in _matched([*first, *second]):
        if any(sentence.counts.errors for sentence in sentences):
            segments += _segments([_by_reference(sentence.edits) for sentence in sentences])
    errors = np.array(segments, np.float64).reshape(-1, len(first) + len(second))
    differences = errors[:, : len(first)].mean(1) - errors[:, len(first) :].mean(1)
    count = len(differences)
    mean = float(differences.mean()) if count else 0.0
    if count < 2 or np.ptp(differences) < _ALIKE:
        # nothing to tell apart, or every segment differs alike: without spread there is no z, and
        # the exact two-sided test of the signs says how rarely chance has them all alike
        p = min(1.0, 2.0 * 0.5**count) if abs(mean) > _ALIKE else 1.0
        return Mapsswe(segments=count, mean=mean, z=0.0, p=p)
    z = mean / (float(differences.std(ddof=1)) / math.sqrt(count))
    return Mapsswe(segments=count, mean=mean, z=z, p=math.erfc(abs(z) / math.sqrt(2.0)))


def _matched(runs: Row) -> list[tuple[Sentence, ...]]:
    """The same sentence of all runs, in the order of the first one's."""
    first, *rest = runs
    others = [{sentence.name: sentence for sentence in run} for run in rest]
    names = {sentence.name for sentence in first}
    if any(other.keys() != names for other in others):
        raise ValueError("the runs were scored on different sets")
    for sentence in first:
        if any(other[sentence.name].speaker != sentence.speaker for other in others):
            raise ValueError(f"the speaker of {sentence.name} is not the same: score both again")
    return [(s, *(other[s.name] for other in others)) for s in first]


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


def _segments(runs: Sequence[Sequence[tuple[int, bool]]]) -> list[tuple[int, ...]]:
    """Errors of each run in every segment that has any.

    A segment ends with two words, one after another, that all runs have right.
    """
    if len({len(slots) for slots in runs}) > 1:  # an alternation was read differently: one segment
        totals = tuple(sum(errors for errors, _ in slots) for slots in runs)
        return [totals] if any(totals) else []
    segments: list[tuple[int, ...]] = []
    counted, good = [0] * len(runs), 0
    for slots in zip(*runs, strict=True):
        here = [errors for errors, _ in slots]
        counted = [before + errors for before, errors in zip(counted, here, strict=True)]
        good = 0 if any(here) else good + slots[0][1]
        if good >= _GOOD and any(counted):
            segments.append(tuple(counted))
            counted = [0] * len(runs)
    return [*segments, tuple(counted)] if any(counted) else segments


def bootstrap(
    sentences: Sequence[Sentence], *, seed: int = 0, draws: int = 10_000, level: float = 0.95
) -> Interval:
    """WER in percent with its interval: speakers are drawn with replacement.

    Where a set has fewer than five speakers, sentences are drawn instead (see `unit`).
    """
    errors, words = counts = _units(sentences, unit(sentences))
    rates = np.concatenate([_mean([counts], drawn) for drawn in _draws(len(words), seed, draws)])
    return _interval(100.0 * errors.sum() / max(words.sum(), 1), rates, level)


def bootstrap_difference_of_rows(
    first: Row, second: Row, *, seed: int = 0, draws: int = 10_000, level: float = 0.95
) -> Interval:
    """Mean WER of the first row's runs minus that of the second's, in percent, with its interval.

    The same speakers (or sentences) are drawn for all.

    Raises:
        ValueError: the runs were scored on different sets.
    """
    matched = list(zip(*_matched([*first, *second]), strict=True))
    drawn = unit(first[0])
    counts = [_units(sentences, drawn) for sentences in matched]
    size = len(counts[0][0])

    def difference(drawn: NDArray[np.int64]) -> NDArray[np.float64]:
        return _mean(counts[: len(first)], drawn) - _mean(counts[len(first) :], drawn)

    samples = np.concatenate([difference(drawn) for drawn in _draws(size, seed, draws)])
    return _interval(float(difference(np.arange(size)[None])[0]), samples, level)


def unit(sentences: Sequence[Sentence]) -> Unit:
    """What the bootstrap draws from a set: speakers, or sentences of too few speakers."""
    enough = len({sentence.speaker for sentence in sentences}) >= _SPEAKERS
    return "speakers" if enough else "sentences"


def _units(sentences: Sequence[Sentence], drawn: Unit) -> Counted:
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


def _mean(members: Sequence[Counted], drawn: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mean WER of the members, in percent, in every draw."""
    rates = [100.0 * e[drawn].sum(1) / np.maximum(w[drawn].sum(1), 1) for e, w in members]
    return np.mean(rates, axis=0)


def _draws(size: int, seed: int, draws: int) -> Iterator[NDArray[np.int64]]:
    """int64 [some draws, size] each: as many units as there are, with replacement."""
    random, most = np.random.default_rng(seed), max(1, _AT_ONCE // max(size, 1))
    for begin in range(0, draws, most):
        yield random.integers(0, size, (min(most, draws - begin), size))


def _interval(value: float, samples: NDArray[np.float64], level: float) -> Interval:
    low, high = np.quantile(samples, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value=float(value), low=float(low), high=float(high))
