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

from hadpsgd.lm import perplexity
from hadpsgd.lm.arpa import Ngram
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


def occurrences(text: list[list[str]], gram: tuple[str, ...]) -> int:
    """How often an n-gram is in the sentences, read word by word."""
    marked = [["<s>", *words, "</s>"] for words in text]
    places = [(words, at) for words in marked for at in range(len(words) - len(gram) + 1)]
    return sum(tuple(words[at : at + len(gram)]) == gram for words, at in places)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from("abcd"), min_size=2, max_size=5), min_size=1, max_size=20),
    st.lists(st.integers(0, 3), min_size=1, max_size=3),
)
def test_cutoffs_leave_out_what_is_rare(text: list[list[str]], more: list[int]) -> None:
    """What is kept has kaldingram's probability before; all words after any history add up to 1."""
    cutoffs, order = [0, *sorted(more)], 4
    wanted, full = by_kaldingram(text, order)
    kept = {
        words
        for words in wanted
        if occurrences(text, words) > cutoffs[min(len(words), len(cutoffs)) - 1]
    }
    model = estimate(Text.of(text), order, cutoffs)
    found = {ngram.words: ngram for ngram in ngrams(model)}
    assert found.keys() == kept
    assert len(model.orders) == max(map(len, kept))
    for words in kept:
        if words[:-1] not in full:
            assert found[words].log_prob == pytest.approx(wanted[words][0], abs=2e-6)
    asked = np.array([number for word, number in model.ids.items() if word != "<s>"])
    for history in {words for words in kept if "</s>" not in words}:
        before = np.tile([model.id(word) for word in history], (len(asked), 1))
        dense = [probability(found, history, model.words[word]) for word in asked.tolist()]
        np.testing.assert_allclose(10 ** model.log10(before, asked), dense, rtol=1e-5, atol=1e-12)
        assert sum(dense) == pytest.approx(1.0, abs=1e-5)


def probability(table: dict[tuple[str, ...], Ngram], history: tuple[str, ...], word: str) -> float:
    """p(word | history) by the definition of an ARPA file."""
    history = history[-3:]
    if (*history, word) in table:
        return 10 ** table[*history, word].log_prob
    weight = table[history].backoff if history in table else None
    return 10 ** (weight or 0.0) * probability(table, history[1:], word)


def test_cutoffs_of_a_text_of_speech(shared: Path) -> None:
    """n-grams of all lengths but single words are fewer, and the text itself is predicted worse."""
    lang = shared / "kaldi_an4/lang"
    text = list(Vocabulary.of_lang(lang).map(lang / "lm_train.txt"))
    words = Text.of(text)
    whole, cut = estimate(words, 4), estimate(words, 4, [0, 1, 1, 2])
    sizes = [[len(order.keys) for order in model.orders] for model in (whole, cut)]
    assert sizes[0][0] == sizes[1][0] and all(a > b for a, b in zip(*sizes, strict=True) if a > 999)
    assert perplexity.score(whole, text).perplexity < perplexity.score(cut, text).perplexity


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
