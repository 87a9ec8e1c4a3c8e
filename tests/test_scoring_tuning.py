"""What a setting of weight and penalty does to the words that are chosen."""

from __future__ import annotations

import numpy as np
import pytest

from hadpsgd.decoding.lattice import ARC, Lattice, best_paths
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
