"""The matched-pairs test's numbers to their last digits, however small, against SciPy."""

from __future__ import annotations

import pytest
import scipy.stats

from hadpsgd.scoring import nist
from hadpsgd.scoring.nist import Options, Sentence
from hadpsgd.scoring.significance import mapsswe


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


def test_all_segments_alike_are_told_apart_for_certain() -> None:
    """No spread: the same difference in every segment is no chance, and none is no difference."""
    assert mapsswe(run([1, 1, 1]), run([2, 2, 2])).p == 0.0
    assert mapsswe(run([1, 1, 1]), run([1, 1, 1])).p == 1.0
    assert mapsswe(run([1]), run([2])).p == 1.0  # of one segment nothing can be said
