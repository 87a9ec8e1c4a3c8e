"""Two language models given as files: one for the graph, one that rescores its lattices."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import yaml

from hadpsgd.cli import main
from hadpsgd.config import load
from hadpsgd.errors import UserError
from hadpsgd.lm import arpa

WORDS = ["a", "b", "c", "d"]


def model(path: Path, words: str, pairs: str) -> Path:
    """A 2-gram of some words and pairs of them (not normalised: nobody asks)."""
    ones = [f"-1.0\t{word}\t-0.3" for word in ["<s>", "</s>", *words]]
    twos = [f"-0.2\t{pair[0]} {pair[1]}" for pair in pairs.split()]
    lines = ["\\data\\", f"ngram 1={len(ones)}", f"ngram 2={len(twos)}", "", "\\1-grams:", *ones]
    text = "\n".join([*lines, "", "\\2-grams:", *twos, "", "\\end\\", ""])
    path.write_bytes(gzip.compress(text.encode()))
    return path


def run(tmp_path: Path, **lm: object) -> int:
    lang = tmp_path / "lang"
    lang.mkdir(exist_ok=True)
    names = ["<eps>", *WORDS, "#0", "<s>", "</s>"]
    (lang / "words.txt").write_text("".join(f"{w} {i}\n" for i, w in enumerate(names)))
    (tmp_path / "text").write_text("a b a\nb a\n")
    config = tmp_path / "c.yaml"
    config.write_text(yaml.safe_dump({"name": "t", "corpus": {"kind": "an4"}, "lm": lm}))
    arguments = ["--config", config, "--text", tmp_path / "text", "--dev", tmp_path / "text"]
    return main(["lm", *map(str, [*arguments, "--lang", lang, "--out", tmp_path / "out"])])


def test_words_that_one_of_them_lacks_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # as s5c calls them; x has no pronunciation, so that no one misses it
    full = model(tmp_path / "sw1_fsh.o4g.kn.gz", "abdx", "ab ba bd")
    first = model(tmp_path / "sw1.o3g.kn.gz", "abc", "ab ac ca")
    assert run(tmp_path, arpa=str(full), first_pass_arpa=str(first)) == 0
    said = capsys.readouterr().err
    assert "sw1.o3g.kn.gz: 1 words are not in the full model and left out of the graph: c" in said
    assert "1 words of the full model are not in it and cannot be recognised: d" in said
    made = [ngram.words for ngram in arpa.read(tmp_path / "out/first_pass.arpa.gz")]
    assert made == [("<s>",), ("</s>",), ("a",), ("b",), ("a", "b")]
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert report["first_pass"]["ngrams"] == [4, 1]
    assert report["first_pass"]["only_full"] == report["first_pass"]["only_first_pass"] == 1
    assert report["sources"]["corpus"]["source"] == str(full)
    assert report["first_pass"]["perplexity"] > 0


def test_equal_words_say_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = model(tmp_path / "small.arpa.gz", "ab", "ab")
    assert run(tmp_path, arpa=str(model(tmp_path / "x.gz", "ab", "ab ba")),
               first_pass_arpa=str(first)) == 0  # fmt: skip
    assert "small.arpa.gz" not in capsys.readouterr().err


def test_models_that_share_no_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full, first = model(tmp_path / "x.gz", "ab", "ab"), model(tmp_path / "y.gz", "AB", "AB")
    assert run(tmp_path, arpa=str(full), first_pass_arpa=str(first)) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "y.gz: no word that" in said
    missing = tmp_path / "nowhere.gz"
    assert run(tmp_path, arpa=str(full), first_pass_arpa=str(missing)) == 2
    assert "nowhere.gz: no such language model" in capsys.readouterr().err


@pytest.mark.parametrize("more", [{"first_pass_threshold": 1e-7}, {"pieces": 100}])
def test_one_first_pass_at_most(tmp_path: Path, more: dict[str, object]) -> None:
    content = {"name": "t", "corpus": {"kind": "an4"}, "lm": {"first_pass_arpa": "x", **more}}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(UserError, match="first_pass_arpa"):
        load(tmp_path / "c.yaml")
