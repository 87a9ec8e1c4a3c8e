"""Language models of texts of any shape: one word, no repetition, gzipped, or a model instead."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hadpsgd.cli import main
from hadpsgd.errors import UserError
from hadpsgd.graph import arrays
from hadpsgd.graph.command import of_arpa
from hadpsgd.lm import arpa, backoff, perplexity, train
from hadpsgd.lm.prune import prune
from hadpsgd.lm.vocabulary import Vocabulary
from hadpsgd.texts import is_arpa, sentences

WORDS = ["a", "b", "c", "d", "e"]
MODEL = "\\data\\\nngram 1=3\n\n\\1-grams:\n-1\t<s>\n-0.5\t</s>\n-0.4\ta\n\n\\end\\\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With lang/words.txt."""
    words = ["<eps>", *WORDS, "<unk>", "#0", "<s>", "</s>"]
    lines = "".join(f"{word} {number}\n" for number, word in enumerate(words))
    (tmp_path / "lang").mkdir()
    (tmp_path / "lang/words.txt").write_text(lines)
    return tmp_path


def run(folder: Path, text: str | bytes, **lm: Any) -> tuple[int, dict[str, Any]]:
    """Exit status and report of the command."""
    content = text.encode() if isinstance(text, str) else text
    (folder / "text").write_bytes(content)
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump({"name": "t", "corpus": {"kind": "an4"}, "lm": lm}))
    arguments = ["--config", config, "--text", folder / "text", "--dev", folder / "text"]
    status = main(["lm", *map(str, [*arguments, "--lang", folder / "lang", "--out", folder / "o"])])
    report = folder / "o/report.json"
    return status, json.loads(report.read_text()) if report.exists() else {}


SHAPES = {
    "a word": ("a\n", 3),
    "one word a sentence": ("a\nb\nc\na\nb\n" * 10, 3),
    "a sentence": ("a b c d e\n", 4),
    "empty lines": ("\n\n \na\n\n", 3),
    "one sentence again and again": ("a b c\n" * 10, 4),
    "no word twice": ("a b\nc d\n", 4),
    "one word again and again": ("a a a a a a a\n", 4),
    "words unknown": ("zz\n", 3),
    "counts of two alone": ("a\nb\n" * 2, 3),
    "long and short": ("a\n" * 50 + "a b c d e\n", 4),
    "windows": ("\ufeffa b\r\na\r\n", 4),
}


@pytest.mark.parametrize(("text", "order"), SHAPES.values(), ids=SHAPES)
def test_any_text_gives_a_model(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, order: int
) -> None:
    """The order falls to what the text holds, and says so; what the text says is not impossible."""
    status, report = run(folder, text, first_pass_threshold=1e-7)
    said = capsys.readouterr().err
    assert status == 0, said
    full = folder / "o/full.arpa.gz"
    assert len(arpa.check(full)) == report["order"] == report["sources"]["corpus"]["order"] == order
    lower = f"order {order}, not 4: the longest sentence of {folder}/text, with <s> and </s>, has"
    assert said.count(lower) == (order < 4)
    assert report["dev"]["perplexity"] < 100
    for name in ("full", "first_pass"):
        arpa.check(folder / f"o/{name}.arpa.gz")
        graph = of_arpa(arpa=folder / f"o/{name}.arpa.gz", words=folder / "lang/words.txt")
        made = arrays.from_fst(graph)
        assert (made.arcs["olabel"] > 0).any() and np.isfinite(made.final).any()


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.sampled_from("ab"), min_size=1, max_size=4), min_size=1, max_size=8),
    st.integers(2, 6),
)
def test_probabilities_of_any_text(
    tmp_path_factory: pytest.TempPathFactory, text: list[list[str]], order: int
) -> None:
    """They add up to 1 after every history, and no sentence of the text is impossible."""
    folder = tmp_path_factory.mktemp("lm")
    (folder / "text").write_text("".join(" ".join(words) + "\n" for words in text))
    vocabulary = Vocabulary(frozenset(WORDS))
    used = train.train(folder / "text", vocabulary, order, folder / "lm.gz")
    assert used == min(order, max(map(len, text)) + 2) == len(arpa.check(folder / "lm.gz"))
    model = backoff.load(folder / "lm.gz")
    said = sorted({word for words in text for word in words})
    asked = np.array([model.ids[word] for word in [*said, "</s>"]])
    for words in text:
        for end in range(len(words) + 1):
            before = [model.id(word) for word in ["<s>", *words[:end]]]
            total = (10 ** model.log10(np.tile(before, (len(asked), 1)), asked)).sum()
            assert total == pytest.approx(1.0, abs=1e-5)
    assert perplexity.score(model, text).perplexity < 100
    for threshold in (1e-9, 1e-3):
        prune(folder / "lm.gz", threshold, folder / "pruned.gz")
        arpa.check(folder / "pruned.gz")


def test_each_source_has_the_order_that_it_supports(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mixture has the highest."""
    (folder / "other").write_text("a b c d\nb c d\n" * 3)
    status, report = run(folder, "a\nb\n", order=5, sources={"other": str(folder / "other")})
    assert status == 0
    orders = {name: source["order"] for name, source in report["sources"].items()}
    assert orders == {"corpus": 3, "other": 5}
    assert len(arpa.check(folder / "o/full.arpa.gz")) == report["order"] == 5
    assert capsys.readouterr().err.count(" not 5: the longest sentence of") == 1


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, model: str, first: str = ":") -> Path:
    """An lmplz in PATH that gives a model; the file that it copies."""
    program, file = folder / "lmplz", folder / "model.arpa"
    file.write_text(model)
    program.write_text(f'#!/bin/sh\n{first}\ncp {file} "$7"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")
    return file


def test_lmplz_is_asked_for_what_the_text_supports(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KenLM's program is not installed here: one that notes its order stands for it."""
    stand_in(folder, monkeypatch, MODEL, f'echo "$2 ${{11}} $9" > {folder}/order')
    status, _ = run(folder, "a\n", tool="lmplz")
    assert status == 0
    order, where, memory = (folder / "order").read_text().split()
    assert order == "3" and Path(where).name.startswith("tmp")
    assert 0 < int(memory.removesuffix("M")) < psutil.virtual_memory().total / 2**20


def test_lmplz_is_asked_to_prune(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number for every order that the text supports, which has 3 of 4."""
    stand_in(folder, monkeypatch, MODEL, f'echo "$@" > {folder}/asked')
    assert run(folder, "a\n", tool="lmplz", cutoffs=[0, 1])[0] == 0
    assert (folder / "asked").read_text().split(" --prune ")[1] == "0 1 1\n"
    assert run(folder, "a\n", tool="lmplz", cutoffs=[0, 0, 0, 1])[0] == 0
    assert "--prune" not in (folder / "asked").read_text()


PRUNED = (
    "\\data\\\nngram 1=4\nngram 2=2\nngram 3=0\n\n\\1-grams:\n-0.9\t<unk>\t0\n0\t<s>\t-0.3\n"
    "-0.5\t</s>\t0\n-0.4\ta\t-0.3\n\n\\2-grams:\n-0.4\ta </s>\t0\n-0.4\t<s> a\t0\n\n"
    "\\3-grams:\n\n\\end\\\n"
)
"""As lmplz writes what it prunes to nothing."""


def test_an_order_that_lmplz_empties(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = stand_in(folder, monkeypatch, PRUNED)
    for lm in ({"tool": "lmplz", "cutoffs": [0, 0, 9]}, {"arpa": str(model)}):
        status, report = run(folder, "a\n", **lm)
        assert status == 0 and report["ngrams"] == [4, 2]
        assert arpa.check(folder / "o/full.arpa.gz") == [4, 2]


def test_cutoffs_that_leave_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model of what is left, and one line."""
    status, report = run(folder, "a b c\na b d\n", cutoffs=[0, 1], order=4)
    assert status == 0 and report["ngrams"] == [6, 2, 1]
    said = f"order 3, not 4: lm.cutoffs [0, 1] leave no 4-gram of {folder}/text"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cutoffs", "said"),
    [
        ([1, 1], "single words are not left out; the first is 0"),
        ([0, 2, 1], "[0, 2, 1] falls; none may be below the one before"),
        ([0, 0, 0, 0, 1], "5 numbers, and lm.order is 4"),
        ([], "lm.cutoffs"),
        ([0, -1], "lm.cutoffs"),
        ([0, 0.5], "lm.cutoffs"),
    ],
)
def test_cutoffs_that_no_tool_takes(
    folder: Path, cutoffs: list[Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folder, "a b\n", cutoffs=cutoffs)[0] == 2
    err = capsys.readouterr().err
    assert said in err and "cutoffs" in err and err.count("\n") == 1


def test_cutoffs_of_a_finished_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They would be without effect."""
    assert run(folder, "a b\n", cutoffs=[0, 1], arpa="a.arpa")[0] == 2
    assert "cutoffs: lm.arpa is not trained here; leave one of them out" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["model", "model.txt", "model.gz", "model.arpa"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("head", ["", "\n", "SRILM wrote this\n\n", "\ufeff"])
def test_a_model_among_the_sources_is_recognised(
    folder: Path, name: str, packed: bool, head: str
) -> None:
    """By what is in it, whatever it is called."""
    content = (head + MODEL).encode()
    (folder / name).write_bytes(gzip.compress(content) if packed else content)
    assert is_arpa(folder / name)
    status, report = run(folder, "a b\n", sources={"given": str(folder / name)})
    assert status == 0
    assert report["sources"]["given"]["order"] == 1 and "text" not in report["sources"]["given"]


@pytest.mark.parametrize("packed", [False, True])
def test_a_model_for_a_text_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], packed: bool
) -> None:
    content = gzip.compress(MODEL.encode()) if packed else MODEL.encode()
    assert run(folder, content)[0] == 2
    said = capsys.readouterr().err
    assert "text:1: an ARPA language model, not a text. Give it as lm.arpa" in said
    assert not (folder / "o").exists()


@pytest.mark.parametrize("name", ["more.arpa", "more.arpa.gz"])
def test_a_text_called_arpa_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Trained on it, the model would be of n-grams and numbers, if it is a damaged model."""
    (folder / name).write_text("a b c\n")
    assert run(folder, "a b\n", sources={"more": str(folder / name)})[0] == 2
    said = capsys.readouterr().err
    assert f"{name}: called .arpa, but no ARPA language model: \\data\\ is missing" in said


def test_gzipped_texts(folder: Path) -> None:
    """Whatever they are called: the corpus' own, and a source."""
    other = folder / "other.txt"
    other.write_bytes(gzip.compress(b"a b c d\n"))
    status, report = run(folder, gzip.compress(b"a b\n"), sources={"other": str(other)})
    assert status == 0
    assert [s["text"]["words"] for s in report["sources"].values()] == [2, 4]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(b"a b\n" * 1000)[:-12], "text: a damaged gzip archive"),
        (b"caf\xe9\n", "text: not UTF-8 text"),
        (b"\n\n", "text: no words"),
        (None, "text: no such text"),
    ],
    ids=[
        "damaged",
        "latin1",
        "empty",
        "missing",
    ],  # gzip packs the time: an id of its own each time
)
def test_texts_that_cannot_be_read(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "text").write_bytes(content)
    with pytest.raises(UserError, match=message):
        train.train(tmp_path / "text", Vocabulary(frozenset(WORDS)), 3, tmp_path / "lm.gz")


def test_sentences_have_line_numbers(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("\na  b\n\nc\n")
    assert list(sentences(tmp_path / "text")) == [(2, ["a", "b"]), (4, ["c"])]
