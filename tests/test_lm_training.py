"""Language models of a text: training, words outside the lexicon, mixtures of several models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_lms import SECOND, TEXT, lang_folder, spelled

from hadpsgd.errors import UserError
from hadpsgd.lm import arpa, backoff, mix, perplexity, train
from hadpsgd.lm.prune import prune
from hadpsgd.lm.vocabulary import Vocabulary


@pytest.fixture
def lang(tmp_path: Path) -> Path:
    return lang_folder(tmp_path / "lang")


def make(tmp_path: Path, lang: Path, order: int = 3) -> Path:
    (tmp_path / "text").write_text(TEXT)
    out = tmp_path / "lm.arpa.gz"
    train.train(tmp_path / "text", Vocabulary.of_lang(lang), order, out)
    return out


def total_probability(model: backoff.Backoff, history: list[str], words: str) -> float:
    """Sum over the words that may follow at the beginning of a sentence."""
    before = [model.id(word) for word in ("<s>", *history)]
    asked = np.array([model.ids[word] for word in words.split() if word in model.ids])
    return float((10 ** model.log10(np.tile(before, (len(asked), 1)), asked)).sum())


@pytest.mark.parametrize("order", [2, 3, 4])
def test_probabilities_sum_to_one(tmp_path: Path, lang: Path, order: int) -> None:
    model = backoff.load(make(tmp_path, lang, order))
    for history in ([], ["a"], ["a", "b"], ["c", "c"], ["b", "c", "a"]):
        assert total_probability(model, history, "a b c <unk> </s>") == pytest.approx(1.0, abs=2e-3)


def test_the_same_text_gives_the_same_bytes(tmp_path: Path, lang: Path) -> None:
    first = make(tmp_path, lang).read_bytes()
    assert make(tmp_path, lang).read_bytes() == first
    assert arpa.check(tmp_path / "lm.arpa.gz")[0] == 6


def test_words_of_any_script(tmp_path: Path) -> None:
    """Letters of several bytes, one of them a byte that Latin-1 takes for a space."""
    words = ["école", "à", "naïve", "東京", "▁it"]
    (tmp_path / "words.txt").write_text("".join(f"{w} {i}\n" for i, w in enumerate(words)), "utf-8")
    (tmp_path / "text").write_text(f"{' '.join(words)}\n" * 3 + "à école\n", "utf-8")
    out = tmp_path / "lm.arpa.gz"
    train.train(tmp_path / "text", Vocabulary.of_lang(tmp_path), 2, out)
    assert {n.words[0] for n in arpa.read(out) if len(n.words) == 1} == {*words, "<s>", "</s>"}
    prune(out, 1e-9, tmp_path / "pruned.arpa.gz")
    assert ("à", "école") in {n.words for n in arpa.read(tmp_path / "pruned.arpa.gz")}


def test_an4_as_kaldi(shared: Path, tmp_path: Path) -> None:
    lang = shared / "kaldi_an4" / "lang"
    out = tmp_path / "lm.arpa.gz"
    train.train(lang / "lm_train.txt", Vocabulary.of_lang(lang), 4, out)
    assert arpa.counts(out) == arpa.counts(lang / "4gram.arpa.gz")
    sentences = list(Vocabulary.of_lang(lang).map(lang / "lm_train.txt"))
    ours = perplexity.score(backoff.load(out), sentences)
    kaldi = perplexity.score(backoff.load(lang / "4gram.arpa.gz"), sentences)
    assert ours.oov == kaldi.oov == 0
    assert ours.perplexity == pytest.approx(kaldi.perplexity, rel=0.01)


def test_other_words_are_counted_and_named(tmp_path: Path, lang: Path) -> None:
    (tmp_path / "text").write_text(TEXT)
    vocabulary = Vocabulary.of_lang(lang)
    sentences = list(vocabulary.map(tmp_path / "text"))
    assert sentences[-1] == ["<unk>", "a", "b"]
    assert vocabulary.report()["oov_words"] == {"the": 1}
    assert vocabulary.report()["oov"] == 1
    (lang / "oov.txt").write_text("unheard\n")
    assert list(Vocabulary.of_lang(lang).map(tmp_path / "text"))[-1] == ["unheard", "a", "b"]


def test_marks_in_the_text_are_refused(tmp_path: Path, lang: Path) -> None:
    (tmp_path / "text").write_text("a b\n<s> a </s>\n")
    with pytest.raises(UserError, match=r"text:2: <s> or </s> in a sentence"):
        list(Vocabulary.of_lang(lang).map(tmp_path / "text"))


def two_models(tmp_path: Path, lang: Path) -> dict[str, Path]:
    paths = {}
    for name, text in (("one", TEXT.replace("the", "c")), ("two", SECOND)):
        (tmp_path / name).write_text(text)
        paths[name] = tmp_path / f"{name}.arpa.gz"
        train.train(tmp_path / name, Vocabulary.of_lang(lang), 3, paths[name])
    return paths


def test_a_mixture_is_the_weighted_sum(tmp_path: Path, lang: Path) -> None:
    paths = two_models(tmp_path, lang)
    one, two = (backoff.load(path) for path in paths.values())
    both = mix.merge([one, two], [0.7, 0.3])
    for history in ([], ["a"], ["a", "b"], ["c", "b", "b"], ["b", "a"]):
        assert total_probability(both, history, "a b c </s>") == pytest.approx(1.0, abs=1e-4)
    # n-grams that one of them lists are mixed exactly
    listed = {n.words for path in paths.values() for n in arpa.read(path)}
    assert {words for length in (1, 2, 3) for words in spelled(both, length)} == listed
    for words in ("a b", "c c", "b c", "c b b", "a c b"):
        context, last = words.split()[:-1], words.split()[-1]
        parts = [total_probability(m, context, last) for m in (one, two, both)]
        if ("<s>", *words.split())[-3:] in listed:
            assert parts[2] == pytest.approx(0.7 * parts[0] + 0.3 * parts[1], rel=1e-4)


def test_weights_are_the_most_likely_ones(tmp_path: Path, lang: Path) -> None:
    paths = two_models(tmp_path, lang)
    sentences = [line.split() for line in (SECOND + "a b c\n").splitlines()]
    events = mix.event_probabilities([backoff.load(p) for p in paths.values()], sentences)
    assert len(events) == sum(len(s) + 1 for s in sentences)
    weights = mix.tune_weights(events)
    assert weights.sum() == pytest.approx(1.0)
    tried = [np.log(events @ [w, 1 - w]).mean() for w in np.linspace(0, 1, 201)]
    assert np.log(events @ weights).mean() >= max(tried) - 1e-6
