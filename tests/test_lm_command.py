"""`hadpsgd lm`: its report, given models, sources that are mixed, inputs that it refuses."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import yaml
from small_lms import GOOD, SECOND, TEXT, lang_folder

from hadpsgd.cli import main
from hadpsgd.lm import arpa


@pytest.fixture
def lang(tmp_path: Path) -> Path:
    return lang_folder(tmp_path / "lang")


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
