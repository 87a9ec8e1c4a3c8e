"""What a setting of weight and penalty does to the words that are chosen, and which is chosen."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hadpsgd.decoding.lattice import ARC, Lattice, best_paths
from hadpsgd.scoring.align import Counts
from hadpsgd.scoring.choice import choose
from hadpsgd.scoring.filters import Filters
from hadpsgd.scoring.hypotheses import Words
from hadpsgd.scoring.tune import Setting

WORDS = Words(names={0: "<eps>", 1: "one", 2: "two"}, filters=Filters())


def long_or_short(*, acoustic: float, graph: float) -> Lattice:
    """One word, or two of these scores more."""
    rows = [(1, 1, 0.0, 0.0, 2), (1, 1, graph, acoustic, 1), (1, 2, 0.0, 0.0, 2)]
    final = np.full((3, 2), np.inf, np.float32)
    final[2] = 0.0
    return Lattice(final, np.array([0, 2, 3, 3]), np.array(rows, ARC))


@pytest.mark.parametrize(
    ("weight", "penalty", "words"),
    [
        (10.0, 0.0, [1, 2]),
        (10.0, 0.4, [1, 2]),  # the second word gains 2 - 1.5 and costs its penalty
        (10.0, 0.6, [1]),
        (12.0, 0.0, [1, 2]),
        (14.0, 0.0, [1]),  # the language model's 1.5 against 20 / 14
        (14.0, -0.2, [1, 2]),
    ],
)
def test_a_penalty_is_for_words_and_a_weight_for_the_language_model(
    weight: float, penalty: float, words: list[int]
) -> None:
    setting = Setting(lm_weight=weight, word_penalty=penalty)
    lattice = long_or_short(acoustic=-20.0, graph=1.5)
    assert best_paths(lattice, [setting.scaling(WORDS)])[0].words.tolist() == words


def chosen(tried: list[Setting], errors: list[int]) -> Setting:
    return tried[choose(tried, [Counts(correct=1000, sub=count) for count in errors])]


def test_choice_among_equals_is_their_middle() -> None:
    tried = [
        Setting(lm_weight=w, word_penalty=p) for w in (7.0, 8.0, 9.0, 10.0) for p in (0.0, 1.0)
    ]
    errors = [9, 9, 5, 9, 5, 9, 5, 9]
    assert chosen(tried, errors) == Setting(lm_weight=9.0, word_penalty=0.0)


def test_a_few_errors_less_at_a_corner_are_no_reason() -> None:
    """47 errors at two ends of the grid, 48 at what is usual: dev of AN4, four learners."""
    weights = (4.0, 8.0, 12.0, 16.0, 20.0)
    tried = [Setting(lm_weight=w, word_penalty=p) for w in weights for p in (-1.0, 0.0, 1.0)]
    errors = [48 if setting.lm_weight == 12.0 else 60 for setting in tried]
    errors[-1] = 47
    assert chosen(tried, errors) == Setting(lm_weight=12.0, word_penalty=0.0)
    errors[-1] = 44  # half of its square root is 3.3: a difference
    assert chosen(tried, errors) == Setting(lm_weight=20.0, word_penalty=1.0)


def test_values_count_by_their_number_not_by_their_size() -> None:
    """Of 6, 8, 10 and 40 the middle is 8 or 10, the one with fewer errors, else the smaller one;
    where something has no error only what has none is near."""
    tried = [Setting(lm_weight=w, word_penalty=0.0) for w in (40.0, 10.0, 8.0, 6.0)]
    assert chosen(tried, [100, 101, 100, 101]).lm_weight == 8.0
    assert chosen(tried, [100, 100, 101, 101]).lm_weight == 10.0
    assert chosen(tried, [100, 100, 100, 100]).lm_weight == 8.0
    assert chosen(tried, [0, 1, 1, 1]).lm_weight == 40.0


@st.composite
def grids(draw: st.DrawFn) -> tuple[list[Setting], list[int]]:
    """Settings of a grid in any order, and their errors."""
    values = st.lists(st.integers(-9, 9), min_size=1, max_size=4, unique=True)
    tried = [
        Setting(lm_weight=w + 10.0, word_penalty=p / 2, neural_weight=n / 20)
        for w in draw(values)
        for p in draw(values)
        for n in draw(values)
    ]
    tried = draw(st.permutations(tried))
    some = st.integers(0, 40)
    return tried, draw(st.lists(some, min_size=len(tried), max_size=len(tried)))


@given(grids())
def test_it_is_the_middle_of_what_differs_by_chance(grid: tuple[list[Setting], list[int]]) -> None:
    """By fractions, value by value, in whatever order they are tried."""
    tried, errors = grid
    near = [i for i, count in enumerate(errors) if 4 * (count - min(errors)) ** 2 <= min(errors)]

    def places(i: int) -> list[Fraction]:
        own = tried[i].lm_weight, tried[i].word_penalty, tried[i].neural_weight
        columns = zip(*((s.lm_weight, s.word_penalty, s.neural_weight) for s in tried), strict=True)
        return [
            Fraction(sum(other < value for other in set(column)), len(set(column)))
            for value, column in zip(own, columns, strict=True)
        ]

    middle = [sum(each) / len(near) for each in zip(*(places(i) for i in near), strict=True)]
    far = {i: sum((a - m) ** 2 for a, m in zip(places(i), middle, strict=True)) for i in near}
    best = min(near, key=lambda i: (far[i], errors[i], places(i)))
    assert chosen(tried, errors) == tried[best]
