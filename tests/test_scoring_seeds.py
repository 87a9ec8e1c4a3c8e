"""Rows of several seeds: mean, interval and tests against SciPy and NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from hadpsgd.scoring import nist
from hadpsgd.scoring.nist import Options, Sentence
from hadpsgd.scoring.seeds import mean_over_seeds, p_over_seeds
from hadpsgd.scoring.significance import (
    bootstrap_difference_of_rows,
    mapsswe,
    mapsswe_of_rows,
)
from hadpsgd.scoring.significance_command import compare, compare_rows

T_975 = {2: 12.706205, 3: 4.302653, 4: 3.182446}
"""Of Student's t with n - 1 degrees of freedom, from a printed table."""


def sentences(errors: list[int]) -> list[Sentence]:
    """Of four words each, with so many inserted after the second."""
    texts = [" ".join(["a", "b", *["x"] * count, "c", "d"]) for count in errors]
    return [
        Sentence(
            name=f"u{i:03d}",
            speaker=f"s{i % 6}",
            edits=nist.align_texts("a b c d", text, Options()),
        )
        for i, text in enumerate(texts)
    ]


@pytest.mark.parametrize("rates", [[8.1, 8.7], [8.1, 8.7, 9.0], [30.67, 31.92, 31.61, 30.0]])
def test_the_interval_over_seeds_is_students(rates: list[float]) -> None:
    found = mean_over_seeds(rates)
    low, high = scipy.stats.t.interval(
        0.95, len(rates) - 1, loc=np.mean(rates), scale=scipy.stats.sem(rates)
    )
    assert found.value == pytest.approx(sum(rates) / len(rates), rel=1e-12)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-12)
    spread = math.sqrt(sum((r - found.value) ** 2 for r in rates) / (len(rates) - 1))
    half = T_975[len(rates)] * spread / math.sqrt(len(rates))
    assert found.high - found.value == pytest.approx(half, rel=1e-6)


def test_one_seed_has_no_interval() -> None:
    found = mean_over_seeds([8.1])
    assert found.value == 8.1 and math.isnan(found.low) and math.isnan(found.high)


def test_welch_by_hand() -> None:
    first, second = [8.1, 8.7, 9.0], [9.4, 9.9, 10.7, 9.5]
    means = [sum(x) / len(x) for x in (first, second)]
    errors = [
        sum((r - m) ** 2 for r in x) / (len(x) - 1) / len(x)
        for x, m in zip((first, second), means, strict=True)
    ]
    t = (means[0] - means[1]) / math.sqrt(sum(errors))
    freedom = sum(errors) ** 2 / sum(
        e**2 / (len(x) - 1) for e, x in zip(errors, (first, second), strict=True)
    )
    expected = 2 * scipy.stats.t.sf(abs(t), freedom)
    assert p_over_seeds(first, second) == pytest.approx(expected, rel=1e-10)
    assert p_over_seeds(second, first) == pytest.approx(expected, rel=1e-10)


def test_one_row_of_equal_seeds() -> None:
    """Without a warning of SciPy's, which would stand between the tables."""
    found = p_over_seeds([85.365853, 85.365853], [88.0, 86.0, 91.0])
    with pytest.warns(RuntimeWarning):
        theirs = scipy.stats.ttest_ind(
            [85.365853, 85.365853], [88.0, 86.0, 91.0], equal_var=False
        ).pvalue
    assert found == pytest.approx(theirs, rel=1e-9)


def test_seeds_that_say_nothing_of_others() -> None:
    assert p_over_seeds([8.1], [8.0, 9.0]) is None
    assert p_over_seeds([8.0, 8.0], [8.0, 8.0]) is None  # without spread there is no test
    assert p_over_seeds([10.0, 10.0], [10.1, 10.1]) is None


def test_matched_pairs_of_the_members_mean_errors() -> None:
    draws = np.random.default_rng(1)
    first = [draws.integers(0, 3, 60).tolist() for _ in range(3)]
    second = [draws.integers(0, 4, 60).tolist() for _ in range(2)]
    test = mapsswe_of_rows([*map(sentences, first)], [*map(sentences, second)])
    told = np.array([*first, *second]).T
    told = told[told.any(axis=1)]  # each sentence is a segment: two right words at its end
    differences = told[:, :3].mean(1) - told[:, 3:].mean(1)
    z = scipy.stats.ttest_1samp(differences, 0.0).statistic
    assert test.segments == len(differences)
    assert test.mean == pytest.approx(differences.mean(), rel=1e-12)
    assert test.z == pytest.approx(z, rel=1e-12)
    assert test.p == pytest.approx(2 * scipy.stats.norm.sf(abs(z)), rel=1e-10, abs=0)


def test_the_same_member_again_proves_no_more() -> None:
    """Sentences that are counted twice would make p smaller."""
    one, two = sentences([1, 0, 2, 0, 1, 1] * 5), sentences([0, 0, 1, 1, 0, 2] * 5)
    assert mapsswe_of_rows([one] * 3, [two] * 3) == mapsswe(one, two)
    alone = bootstrap_difference_of_rows([one], [two], draws=200)
    again = bootstrap_difference_of_rows([one] * 3, [two] * 3, draws=200)
    assert (again.value, again.low, again.high) == pytest.approx(
        (alone.value, alone.low, alone.high), rel=1e-12
    )


def test_the_difference_is_that_of_the_means() -> None:
    draws = np.random.default_rng(2)
    first = [sentences(draws.integers(0, 3, 30).tolist()) for _ in range(3)]
    second = [sentences(draws.integers(0, 3, 30).tolist()) for _ in range(2)]
    report = compare_rows(
        {
            "a": {f"a-s{i}": run for i, run in enumerate(first)},
            "b": {f"b-s{i}": run for i, run in enumerate(second)},
            "c": {"c": first[0]},
        }
    )
    rates = [
        [100 * nist.total(run).errors / nist.total(run).words for run in row]
        for row in (first, second)
    ]
    a, b = report["runs"]["a"], report["runs"]["b"]
    assert a["wer"] == pytest.approx(np.mean(rates[0]), abs=5e-4)
    assert a["interval"] == pytest.approx(
        scipy.stats.t.interval(0.95, 2, np.mean(rates[0]), scipy.stats.sem(rates[0])), abs=5e-4
    )
    assert b["errors"] == sum(nist.total(run).errors for run in second)
    alone = compare({f"a-s{i}": run for i, run in enumerate(first)})["runs"]
    assert a["members"] == alone and "members" not in report["runs"]["c"]
    pairs = {(pair["first"], pair["second"]): pair for pair in report["pairs"]}
    assert pairs.keys() == {("a", "b"), ("a", "c"), ("b", "c")}
    pair = pairs["a", "b"]
    assert pair["difference"] == pytest.approx(np.mean(rates[0]) - np.mean(rates[1]), abs=5e-4)
    welch = scipy.stats.ttest_ind(*rates, equal_var=False).pvalue
    assert pair["p_seeds"] == pytest.approx(welch, abs=5e-6)
    assert pairs["a", "c"]["p_seeds"] is None
