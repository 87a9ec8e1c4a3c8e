"""Language models: training, checks of ARPA files, perplexity."""

from __future__ import annotations

import gzip
import json
import math
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hadpsgd.cli import main
from hadpsgd.errors import UserError
from hadpsgd.lm import arpa, backoff, mix, perplexity, train
from hadpsgd.lm.prune import prune
from hadpsgd.lm.vocabulary import Vocabulary

TEXT = "a b c\na b\nb c a b\nc c a\na\nb a c b\nthe a b\n"
GOOD = """\\data\\
ngram 1=4
ngram 2=2

\\1-grams:
-1.0\t<s>\t-0.3
-0.5\t</s>
-0.4\ta\t-0.2
-0.6\tb

\\2-grams:
-0.1\t<s> a
-0.2\ta b

\\end\\
"""


@pytest.fixture
def lang(tmp_path: Path) -> Path:
    folder = tmp_path / "lang"
    folder.mkdir()
    words = ["<eps>", "a", "b", "c", "unheard", "#0", "<s>", "</s>"]
    (folder / "words.txt").write_text("".join(f"{w} {i}\n" for i, w in enumerate(words)))
    return folder


def make(tmp_path: Path, lang: Path, order: int = 3) -> Path:
    (tmp_path / "text").write_text(TEXT)
    out = tmp_path / "lm.arpa.gz"
    train.train(tmp_path / "text", Vocabulary.of_lang(lang), order, out)
    return out


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


def config_file(tmp_path: Path, **lm: object) -> Path:
    path = tmp_path / "config.yaml"
    content = {"name": "t", "corpus": {"kind": "an4"}, "lm": lm}
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def run(tmp_path: Path, lang: Path, dev: str = "text", **lm: object) -> int:
    (tmp_path / "text").write_text(TEXT)
    arguments = ["--config", config_file(tmp_path, **lm), "--text", tmp_path / "text"]
    arguments += ["--dev", tmp_path / dev, "--lang", lang, "--out", tmp_path / "out"]
    return main(["lm", *map(str, arguments)])


def test_command_and_report(tmp_path: Path, lang: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, lang, order=3) == 0
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["sources"]["corpus"]["text"]["oov"] == 1
    assert report["lexicon_words_without_probability"]["words"] == ["unheard"]
    assert math.isfinite(report["dev"]["perplexity"])
    assert arpa.check(tmp_path / "out" / "full.arpa.gz") == report["ngrams"]
    assert "text are not in the lexicon, such as the" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("dev", b"\n", "dev: no words. Give one sentence a line"),
        ("lang/words.txt", b"", "words.txt: no words"),
        ("lang/words.txt", b"<eps> 0\n#0 1\n<s> 2\n", "words.txt: no words"),
        ("lang/words.txt", b"\xff 1\n", "words.txt: not UTF-8"),
        ("lang/oov.txt", b"\xff\n", "oov.txt: not UTF-8"),
        ("lang/oov.txt", b"<unk> b\n", "oov.txt: 2 words"),
    ],
)
def test_inputs_without_words_are_named(
    tmp_path: Path,
    lang: Path,
    capsys: pytest.CaptureFixture[str],
    file: str,
    content: bytes,
    message: str,
) -> None:
    (tmp_path / "dev").write_text(TEXT)
    (tmp_path / file).write_bytes(content)
    assert run(tmp_path, lang, "dev", order=2) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_existing_model_is_checked_and_taken(
    tmp_path: Path, lang: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = tmp_path / "given.arpa"
    given.write_text(
        GOOD.replace("\t", " ").replace("-0.6 b", "-0.6 zebra").replace("a b", "a zebra")
    )
    assert run(tmp_path, lang, arpa=str(given)) == 0
    assert arpa.check(tmp_path / "out" / "full.arpa.gz") == [4, 2]
    assert "have no pronunciation and are left out of the graph, such as zebra" in (
        capsys.readouterr().err
    )
    given.write_text(GOOD.replace("-0.4\ta\t-0.2", "-0.4\ta"))
    assert run(tmp_path, lang, arpa=str(given)) == 2
    assert "no back-off weight" in capsys.readouterr().err


SECOND = "a c b\nc b\nc b b a\nb b\n"


def total_probability(model: backoff.Backoff, history: list[str], words: str) -> float:
    """Sum over the words that may follow at the beginning of a sentence."""
    before = [model.id(word) for word in ("<s>", *history)]
    asked = np.array([model.ids[word] for word in words.split() if word in model.ids])
    return float((10 ** model.log10(np.tile(before, (len(asked), 1)), asked)).sum())


def spelled(model: backoff.Backoff, length: int) -> list[tuple[str, ...]]:
    """The n-grams of a length."""
    return [tuple(model.words[i] for i in gram) for gram in model.grams(length)]


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


def test_sources_are_mixed_by_the_command(
    tmp_path: Path, lang: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other").write_text(SECOND * 3)
    given = tmp_path / "given.arpa"
    given.write_text(GOOD)
    sources = {"other": str(tmp_path / "other"), "given": str(given)}
    assert run(tmp_path, lang, order=3, sources=sources, first_pass_threshold=1e-4) == 0
    report = json.loads((tmp_path / "out/report.json").read_text())
    weights = [source["weight"] for source in report["sources"].values()]
    assert list(report["sources"]) == ["corpus", "other", "given"]
    assert sum(weights) == pytest.approx(1.0, abs=1e-3)
    # the given model lacks words, which do not count in its perplexity
    alone = [report["sources"][name]["dev"]["perplexity"] for name in ("corpus", "other")]
    assert report["dev"]["perplexity"] < min(alone)
    assert arpa.check(tmp_path / "out/first_pass.arpa.gz") == report["first_pass"]["ngrams"]
    assert "weight 0." in capsys.readouterr().err
    assert run(tmp_path, lang, order=3, first_pass_threshold=10.0) == 0
    assert "a threshold of 10 leaves no 2-gram" in capsys.readouterr().err


def test_lmplz_that_is_missing_is_named(
    tmp_path: Path,
    lang: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(tmp_path, lang, tool="lmplz") == 2
    assert "lmplz is not in PATH" in capsys.readouterr().err
    program = tmp_path / "lmplz"
    program.write_text("#!/bin/sh\necho 'no memory' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert run(tmp_path, lang, tool="lmplz") == 2
    assert "lmplz failed: no memory" in capsys.readouterr().err
