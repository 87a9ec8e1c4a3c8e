"""Probabilities after any history, unknown words in it too, against Katz's recursion."""

from __future__ import annotations

import gzip
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from hadpsgd.lm import arpa, backoff, perplexity, train

WORDS = ("<s>", "</s>", "a", "b", "c")
Table = dict[tuple[str, ...], tuple[float, float]]


def table(order: int, share: float, seed: int) -> Table:
    """Log probability and back-off of all words and of a share of the longer n-grams."""
    draws = np.random.default_rng(seed)
    found: Table = {}
    contexts: list[tuple[str, ...]] = [()]
    for length in range(1, order + 1):
        made = [(*c, w) for c in contexts for w in WORDS if c[-1:] != ("</s>",)]
        contexts = [words for words in made if length == 1 or draws.random() < share]
        found |= {words: tuple(-draws.random(2).round(3)) for words in contexts}
    return found


def by_definition(listed: Table, history: tuple[str, ...], word: str) -> float:
    if (*history, word) in listed:
        return listed[(*history, word)][0]
    return listed.get(history, (0.0, 0.0))[1] + by_definition(listed, history[1:], word)


def model_of(listed: Table, folder: Path) -> backoff.Backoff:
    order = max(map(len, listed))
    ngrams = [
        arpa.Ngram(words=w, log_prob=p, backoff=b if len(w) < order else None, line=0)
        for w, (p, b) in listed.items()
    ]
    sizes = [sum(len(words) == n for words in listed) for n in range(1, order + 1)]
    train.write(folder / "lm.arpa.gz", sizes, ngrams)
    return backoff.load(folder / "lm.arpa.gz")


@pytest.mark.parametrize(("share", "order"), [(1.0, 3), (0.6, 3), (0.6, 4)])
def test_an_unknown_word_ends_a_history(share: float, order: int, tmp_path: Path) -> None:
    """Nothing before it counts, and it is not taken for a word of the model."""
    listed = table(order, share, seed=1)
    model = model_of(listed, tmp_path)
    asked = np.array([model.id(word) for word in ("</s>", "a", "b", "c")])
    for history in product(("<s>", "a", "b", "c", "lacking"), repeat=3):
        before = np.array([[model.id(word) for word in history]] * len(asked))
        found = model.log10(before, asked)
        kept = history[len(history) - min(order - 1, 3) :]
        expected = [by_definition(listed, kept, model.words[i]) for i in asked]
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-6), history
        if "lacking" in history:
            after = history[history.index("lacking") :]
            assert model.log10(np.array([[model.id(w) for w in after]] * len(asked)), asked) == (
                pytest.approx(found, rel=1e-6)
            )


def test_a_sentence_with_unknown_words(tmp_path: Path) -> None:
    """They are counted and left out; what follows them is read without what came before."""
    listed = table(3, 1.0, seed=2)
    found = perplexity.score(model_of(listed, tmp_path), [["a", "lacking", "b", "c"], ["x", "a"]])
    assert (found.words, found.sentences, found.oov) == (6, 2, 2)
    parts = [
        (("<s>",), "a"), (("a", "lacking"), "b"), (("lacking", "b"), "c"), (("b", "c"), "</s>"),
        (("<s>", "x"), "a"), (("x", "a"), "</s>"),
    ]  # fmt: skip
    expected = sum(by_definition(listed, history, word) for history, word in parts)
    assert found.log10 == pytest.approx(expected, rel=1e-5)


def test_orders_without_n_grams_are_none(tmp_path: Path) -> None:
    """As tools write them where pruning left nothing of an order."""
    listed = table(2, 0.6, seed=3)
    model = model_of(listed, tmp_path)
    file = tmp_path / "lm.arpa"
    text = gzip.decompress((tmp_path / "lm.arpa.gz").read_bytes()).decode()
    text = text.replace("\n\n\\1-grams:", "\nngram 3=0\nngram 4=0\n\n\\1-grams:")
    file.write_text(text.replace("\\end\\", "\\3-grams:\n\n\\4-grams:\n\n\\end\\"))
    found = backoff.load(file)
    assert len(found.orders) == 2
    asked = np.array([model.id(word) for word in WORDS[1:]])
    for history in product(WORDS, repeat=3):
        before = np.array([[model.id(word) for word in history]] * len(asked))
        assert found.log10(before, asked) == pytest.approx(model.log10(before, asked))
    assert arpa.check(file)[2:] == [0, 0]
