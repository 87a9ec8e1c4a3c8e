"""Tests of significance against SciPy: p to its last digit, however small; bootstrap intervals."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from numpy.typing import NDArray

from hadpsgd.scoring import nist
from hadpsgd.scoring.nist import Options, Sentence
from hadpsgd.scoring.significance import (
    bootstrap,
    bootstrap_difference_of_rows,
    mapsswe,
    mapsswe_of_rows,
)


def run(errors: list[int]) -> list[Sentence]:
    """Sentences of one right word, each a segment of its own, with so many inserted after it."""
    texts = [" ".join(["a", *["x"] * count]) for count in errors]
    return [
        Sentence(name=f"u{i:03d}", speaker="s", edits=nist.align_texts("a", text, Options()))
        for i, text in enumerate(texts)
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([1, 2, 0, 1], [1, 0, 1, 2]),
        ([3, 1, 2] * 5, [1, 1, 1] * 5),
        ([0, 1] * 60, [1, 1] * 60),
        ([2, 1, 3] * 40, [1, 1, 1] * 40),
        ([0, 1, 0, 0] * 90, [1, 2, 2, 1] * 90),
    ],
)
def test_p_is_two_sided_whatever_its_size(first: list[int], second: list[int]) -> None:
    differences = [a - b for a, b in zip(first, second, strict=True) if a or b]
    z = scipy.stats.ttest_1samp(differences, 0.0).statistic  # its t is the matched pairs' z
    for one, two, sign in ((first, second, 1), (second, first, -1)):
        test = mapsswe(run(one), run(two))
        assert test.segments == len(differences)
        assert test.z == pytest.approx(sign * z, rel=1e-12)
        assert test.p == pytest.approx(2 * scipy.stats.norm.sf(abs(z)), rel=1e-10, abs=0)


@pytest.mark.parametrize("count", [1, 2, 3, 30])
@pytest.mark.parametrize(("one", "two"), [(0, 1), (2, 1)])
def test_where_all_segments_differ_alike_p_is_of_the_signs(one: int, two: int, count: int) -> None:
    """There is no spread for a z: few segments prove little, however alike."""
    test = mapsswe(run([one] * count), run([two] * count))
    exact = scipy.stats.binomtest(count, count).pvalue
    assert test.segments == count and test.p == pytest.approx(exact, rel=1e-12)


def test_means_that_rounding_alone_sets_apart_are_alike() -> None:
    """Of three runs: 4/3 - 1 is not 1/3 in floating point."""
    first = [run([1, 4, 2] * 4), run([0, 0, 0] * 4), run([0, 0, 0] * 4)]
    second = [run([0, 3, 1] * 4), run([0, 0, 0] * 4), run([0, 0, 0] * 4)]
    exact = scipy.stats.binomtest(12, 12).pvalue
    assert mapsswe_of_rows(first, second).p == pytest.approx(exact, rel=1e-12)


def test_no_difference_is_no_difference() -> None:
    assert mapsswe(run([1, 1, 1]), run([1, 1, 1])).p == 1.0
    assert mapsswe(run([0]), run([0])).p == 1.0


def spoken(speakers: int, seed: int, sentences: int = 30) -> list[Sentence]:
    """Sentences of ten words; speakers differ more than chance would have them."""
    draws, scored = np.random.default_rng(seed), []
    reference = " ".join("abcdefghij")
    for speaker, share in enumerate(np.linspace(0.02, 0.5, speakers)):
        for number in range(sentences):
            wrong = draws.random(10) < share
            hyp = " ".join("x" if w else c for c, w in zip("abcdefghij", wrong, strict=True))
            edits = nist.align_texts(reference, hyp, Options())
            scored.append(Sentence(name=f"{speaker}-{number}", speaker=f"s{speaker}", edits=edits))
    return scored


def totals(scored: list[Sentence], by: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Errors and words of every speaker, or of every sentence."""
    keys = [getattr(sentence, by) for sentence in scored]
    table = {key: np.zeros(2) for key in keys}
    for key, sentence in zip(keys, scored, strict=True):
        table[key] += sentence.counts.errors, sentence.counts.words
    errors, words = np.array(list(table.values())).T
    return errors, words


@pytest.mark.parametrize(("speakers", "drawn"), [(12, "speaker"), (5, "speaker"), (4, "name")])
@pytest.mark.parametrize("level", [0.95, 0.8])
def test_intervals_are_those_of_a_bootstrap(speakers: int, drawn: str, level: float) -> None:
    """Over speakers, or over sentences where there are fewer than five speakers."""
    one, two = spoken(speakers, 1), spoken(speakers, 2)
    options = {"paired": True, "method": "percentile", "confidence_level": level, "rng": 3}

    def rate(errors: np.ndarray, words: np.ndarray, axis: int = -1) -> np.ndarray:
        return 100 * errors.sum(axis) / words.sum(axis)

    def gap(e: np.ndarray, w: np.ndarray, f: np.ndarray, v: np.ndarray, axis: int = -1
            ) -> np.ndarray:  # fmt: skip
        return rate(e, w, axis) - rate(f, v, axis)

    first, second = totals(one, drawn), totals(two, drawn)
    for ours, data, statistic in (
        (bootstrap(one, level=level), first, rate),
        (bootstrap_difference_of_rows([one], [two], level=level), (*first, *second), gap),
    ):
        theirs = scipy.stats.bootstrap(data, statistic, n_resamples=10_000, **options)
        low, high = theirs.confidence_interval
        assert ours.value == pytest.approx(float(statistic(*data)), rel=1e-9)
        assert (ours.low, ours.high) == pytest.approx((low, high), abs=0.05 * (high - low))
