"""ARPA files: which are refused, and what a model that was read from one says."""

from __future__ import annotations

import gzip
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_lms import GOOD, spelled

from hadpsgd.errors import UserError
from hadpsgd.lm import arpa, backoff, perplexity, train


def test_a_good_file_passes(tmp_path: Path) -> None:
    path = tmp_path / "good.arpa"
    path.write_text(GOOD)
    assert arpa.check(path) == [4, 2]
    with gzip.open(tmp_path / "good.arpa.gz", "wt") as stream:
        stream.write(GOOD)
    assert arpa.check(tmp_path / "good.arpa.gz") == [4, 2]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("-0.4\ta\t-0.2", "-0.4\ta", ":13: the context of this 2-gram has no back-off weight"),
        ("-0.2\ta b", "-0.2\tz b", ":13: the context of this 2-gram is not listed"),
        ("-0.6\tb", "nan\tb", ":9: 'nan\tb': not a number"),
        ("-0.6\tb", "0.6\tb", ":9: '0.6\tb': a probability above 1"),
        ("-0.6\tb", "-0.6 b x y", ":9: '-0.6 b x y' is not a probability, 1 words, a back-off"),
        ("-0.6\tb", "-0.6\tb\tinf", ":9: '-0.6\tb\tinf': an infinite back-off"),
        ("ngram 2=2", "ngram 2=3", ":15: 2 2-grams, \\data\\ says 3"),
        ("ngram 1=4", "ngram 1=5", ":11: 4 1-grams, \\data\\ says 5"),
        ("ngram 2=2", "ngram 3=2", ":3: 'ngram 3=2' is out of order"),
        ("\\end\\", "", "cut short: no \\end\\"),
        ("\\data\\", "", "no ARPA language model"),
        ("-1.0\t<s>", "-1.0\tx", "is not listed"),
        ("\\2-grams:", "\\3-grams:", "where \\2-grams: belongs"),
    ],
)
def test_faults_are_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "bad.arpa"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(UserError) as error:
        arpa.check(path)
    assert message in str(error.value)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("first", "last", "order", "place"),
    [("-0.6\tb", "-0.6\tb", 1, 10), ("-0.4\ta\t-0.2", "-0.6\tb", 1, 10),
     ("-0.1\t<s> a", "-0.2\ta b", 2, 14)],
)  # fmt: skip
def test_an_ngram_that_is_listed_twice(
    tmp_path: Path, first: str, last: str, order: int, place: int
) -> None:
    """It would be counted twice in a mixture and in the graph, once in rescoring."""
    path = tmp_path / "twice.arpa"
    text = GOOD.replace(*(("1=4", "1=5") if order == 1 else ("2=2", "2=3")))
    path.write_text(text.replace(f"{last}\n", f"{last}\n{first}\n"))
    with pytest.raises(UserError, match=rf"twice.arpa:{place}: this {order}-gram is listed tw"):
        arpa.check(path)
    with pytest.raises(UserError, match=r"twice.arpa: '.*' is listed twice"):
        backoff.load(path)


def test_a_backoff_of_nothing_is_taken(tmp_path: Path) -> None:
    """Some programs write -inf, others -99."""
    path = tmp_path / "good.arpa"
    path.write_text(GOOD.replace("-0.4\ta\t-0.2", "-0.4\ta\t-inf"))
    arpa.check(path)
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isneginf(backoff.load(path).orders[0].backoff).sum() == 1


def test_a_cut_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cut.arpa.gz"
    path.write_bytes(gzip.compress(GOOD.encode())[:-20])
    with pytest.raises(UserError, match="damaged gzip"):
        arpa.check(path)


def test_perplexity_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "good.arpa"
    path.write_text(GOOD)
    result = perplexity.score(backoff.load(path), [["a", "b"], ["a", "unknown"]])
    assert (result.words, result.sentences, result.oov) == (4, 2, 1)
    # <s> a, a b, b </s>; then <s> a, unknown left out, </s> after it
    expected = (-0.1 - 0.2 - 0.5) + (-0.1 - 0.5)
    assert result.log10 == pytest.approx(expected, abs=1e-5)
    assert result.perplexity == pytest.approx(10 ** (-expected / 5))


Table = dict[tuple[str, ...], tuple[float, float]]


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Log probability and back-off of n-grams up to order 4, some of any length left out."""
    rate = draw(st.floats(0.1, 0.9))
    numbers = np.random.default_rng(draw(st.integers(0, 2**32)))
    table: Table = {}
    contexts: list[tuple[str, ...]] = [()]
    for _ in range(draw(st.integers(1, 4))):
        made = [(*c, w) for c in contexts for w in ("<s>", "</s>", "a", "b") if c[-1:] != ("</s>",)]
        contexts = [words for words in made if len(words) == 1 or numbers.random() < rate]
        table |= {words: tuple(-numbers.random(2).round(3)) for words in contexts}
    return table


def by_definition(table: Table, history: tuple[str, ...], word: str) -> float:
    """Katz's recursion."""
    if (*history, word) in table:
        return table[(*history, word)][0]
    return table.get(history, (0.0, 0.0))[1] + by_definition(table, history[1:], word)


@given(tables(), st.lists(st.sampled_from(["<s>", "a", "b", "lacking"]), max_size=5))
def test_a_model_is_its_definition(table: Table, history: list[str]) -> None:
    order = max(map(len, table))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lm.arpa.gz"
        listed = [
            arpa.Ngram(words=w, log_prob=p, backoff=b if len(w) < order else None, line=0)
            for w, (p, b) in table.items()
        ]
        train.write(path, [sum(len(w) == n for w in table) for n in range(1, order + 1)], listed)
        model = backoff.load(path)
    words = ["</s>", "a", "b"]
    before = np.array([[model.id(word) for word in history]] * 3, np.int64).reshape(3, len(history))
    found = model.log10(before, np.array([model.id(word) for word in words]))
    kept = tuple(history[max(0, len(history) - order + 1) :])
    expected = [by_definition(table, kept, word) for word in words]
    assert found == pytest.approx(expected, abs=1e-5)
    for length in range(1, order + 1):
        grams = model.grams(length)
        assert {w for w in table if len(w) == length} == set(spelled(model, length))
        assert (model.rows(grams) == np.arange(len(grams))).all()


def test_a_context_that_is_not_listed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.arpa"
    path.write_text(GOOD.replace("a b", "b b"))
    assert backoff.load(path)
    path.write_text(GOOD.replace("a b", "c b"))
    with pytest.raises(UserError, match=r"bad.arpa:\d+: a word or the context of this 2-gram"):
        backoff.load(path)
