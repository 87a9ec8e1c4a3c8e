"""Kneser-Ney on arrays against kaldingram, an implementation of its own: Python objects."""

from __future__ import annotations

import io
import math
from contextlib import redirect_stderr
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kaldingram.train import NgramCounts

from hadpsgd.lm.kneser_ney import Text, estimate
from hadpsgd.lm.vocabulary import Vocabulary
from hadpsgd.lm.whole import ngrams

Table = dict[tuple[str, ...], tuple[float, float | None]]


def by_kaldingram(text: list[list[str]], order: int) -> tuple[Table, set[tuple[str, ...]]]:
    """Log probability and back-off, with KenLM's fallback; and histories that all words follow."""
    counts = NgramCounts(order)
    with redirect_stderr(io.StringIO()):
        for sentence in text:
            counts.add_raw_counts_from_line(" ".join(sentence))
        counts.cal_discounting_constants()
        counts.d = [0.5 if discount >= 1.0 else discount for discount in counts.d]
        counts.cal_f()
        counts.cal_bow()
    table: Table = {}
    for histories in counts.counts:
        for history, seen in histories.items():
            for word, value in seen.word_to_f.items():
                weight = seen.word_to_bow[word]
                log_prob = math.log10(value) if value else -99.0
                table[(*history, word)] = (log_prob, math.log10(weight) if weight else None)
    words = sum(value > 0 for value in counts.counts[0][()].word_to_f.values())
    full = {h for histories in counts.counts[1:] for h, seen in histories.items()
            if len(seen.word_to_f) == words}  # fmt: skip
    return table, full


def compare(text: list[list[str]], order: int) -> int:
    """All n-grams but those after full histories; returns how many these are."""
    wanted, full = by_kaldingram(text, order)
    found = {ngram.words: ngram for ngram in ngrams(estimate(Text.of(text), order))}
    assert found.keys() == wanted.keys()
    for words, (log_prob, weight) in wanted.items():
        # what comes after full histories is scaled, and the back-off to them follows from that
        if words[:-1] not in full:
            assert found[words].log_prob == pytest.approx(log_prob, abs=2e-6)
        touched = any(words[start:] in full for start in range(len(words)))
        if weight is not None and not touched and weight > -5:
            assert found[words].backoff == pytest.approx(weight, abs=1e-4)
    return sum(words[:-1] in full for words in wanted)


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=5), min_size=1, max_size=30),
    st.integers(2, 5),
)
def test_as_kaldingram(text: list[list[str]], order: int) -> None:
    compare(text, min(order, max(map(len, text)) + 2))


def test_a_text_of_speech_as_kaldingram(shared: Path) -> None:
    lang = shared / "kaldi_an4/lang"
    text = list(Vocabulary.of_lang(lang).map(lang / "lm_train.txt"))
    assert not compare(text, 4)


def test_histories_that_all_words_follow_add_up_to_one() -> None:
    """a, b and the end each come after a, so nothing is left to back off to."""
    text = [["a", "a", "b"], ["b", "a"], ["a", "b", "a"], ["b", "b"]]
    model = estimate(Text.of(text), 2)
    after = np.array([[model.id("a")]] * 3)
    words = np.array([model.id(word) for word in ("a", "b", "</s>")])
    assert (10 ** model.log10(after, words)).sum() == pytest.approx(1.0, abs=1e-6)
    assert model.orders[0].backoff[model.id("a")] == -99.0
