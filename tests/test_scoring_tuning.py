"""What a setting of weight and penalty does to the words that are chosen."""

from __future__ import annotations

import numpy as np
import pytest

from hadpsgd.decoding.lattice import ARC, Lattice, best_paths
from hadpsgd.scoring.align import Counts
from hadpsgd.scoring.filters import Filters
from hadpsgd.scoring.hypotheses import Words
from hadpsgd.scoring.tune import Setting, Tried, choose

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


def tried_of(rows: dict[tuple[float, float], list[int]]) -> Tried:
    """Errors of each utterance under (language model weight, neural weight)."""
    settings = [Setting(lm_weight=w, word_penalty=0.0, neural_weight=n) for w, n in rows]
    errors = np.array(list(rows.values()))
    return Tried(settings, [Counts(correct=100, sub=int(row.sum())) for row in errors], errors)


PERPLEXITIES = {0.0: 150.0, 0.5: 100.0, 0.9: 120.0}


def test_of_neural_weights_alike_in_errors_the_least_perplexity_chooses() -> None:
    """Differences of the first two are 1, -1, 1, 0: one error, with a standard error of 1.9."""
    found = tried_of(
        {
            (8.0, 0.0): [9, 9, 9, 9],
            (8.0, 0.5): [3, 0, 2, 1],
            (9.0, 0.5): [4, 1, 2, 2],
            (8.0, 0.9): [2, 1, 1, 1],
        }
    )
    assert found.standard_error(1, 3) == pytest.approx(2 * np.std([1, -1, 1, 0], ddof=1))
    assert found.settings[choose(found)].neural_weight == 0.9
    assert choose(found, PERPLEXITIES) == 1
    assert choose(found, PERPLEXITIES | {0.9: 99.0}) == 3


def test_a_neural_weight_with_surely_more_errors_is_not_chosen() -> None:
    """Every utterance has one error more: their difference has no spread."""
    found = tried_of({(8.0, 0.5): [2, 3, 1, 2], (8.0, 0.9): [1, 2, 0, 1]})
    assert found.standard_error(0, 1) == 0.0
    assert choose(found, PERPLEXITIES) == 1
    alike = tried_of({(8.0, 0.5): [1, 2, 0, 1], (8.0, 0.9): [1, 2, 0, 1]})
    assert choose(alike, PERPLEXITIES) == 0


def test_one_utterance_has_no_spread() -> None:
    found = tried_of({(8.0, 0.5): [2], (8.0, 0.9): [1]})
    assert choose(found, PERPLEXITIES) == 1
