"""Matched-pairs tests and bootstrap intervals: by hand, as NIST's sc_stats, as a command."""

from __future__ import annotations

import json
import math
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from drawn_sentences import files_of, needs_sclite, random_sentences
from hypothesis import given, settings
from hypothesis import strategies as st

from hadpsgd.cli import main
from hadpsgd.errors import UserError
from hadpsgd.scoring import formats, nist, sclite, sentences, significance
from hadpsgd.scoring.nist import Options, Sentence
from hadpsgd.scoring.significance import (
    bootstrap,
    bootstrap_difference_of_rows,
    mapsswe,
    mapsswe_of_rows,
)


@needs_sclite
def test_sc_stats_itself_agrees(tmp_path: Path) -> None:
    runs = [random_sentences(1, 80, 0.2), random_sentences(2, 80, 0.35)]
    rescored = []
    for name, scored in zip(("one", "two"), runs, strict=True):
        reference, words = files_of(scored)
        formats.write_lines(tmp_path / "stm", reference)
        formats.write_lines(tmp_path / name, words)
        call = sclite.command("sclite") or []
        arguments = ["-r", "stm", "stm", "-h", name, "ctm", name, "-o", "sgml", "-n", name]
        subprocess.run([*call, *arguments], cwd=tmp_path, check=True, capture_output=True)
        rescored.append(nist.score_ctm(reference, formats.read_ctm(tmp_path / name)))
    both = (tmp_path / "one.sgml").read_text() + (tmp_path / "two.sgml").read_text()
    call = sclite.command("sc_stats") or []
    arguments = ["-p", "-t", "mapsswe", "-v", "-n", "-"]
    said = subprocess.run(
        [*call, *arguments], input=both, capture_output=True, text=True, check=True
    ).stdout
    found = re.search(r"# segs: (\d+)\).*mean: (\S+)\).*Z Stat: (\S+)\)", said)
    assert found
    test = mapsswe(rescored[0], rescored[1])
    assert test.segments == int(found[1])
    assert test.mean == pytest.approx(float(found[2]), abs=6e-4)
    assert test.z == pytest.approx(float(found[3]), abs=6e-4)
    assert test.p == pytest.approx(math.erfc(abs(float(found[3])) / math.sqrt(2)), abs=1e-3)


def test_blocks_of_draws_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand draws of ten thousand speakers at once would be most of a GiB."""
    one, two = random_sentences(1, 80, 0.2), random_sentences(2, 80, 0.35)
    found = []
    for at_once in (1, 10**5, 10**9):
        monkeypatch.setattr(significance, "_AT_ONCE", at_once)
        found.append((bootstrap(one), bootstrap_difference_of_rows([one], [two])))
    assert found[0] == found[1] == found[2]
    errors = [sentence.counts.errors for sentence in sorted(one, key=lambda s: s.name)]
    assert found[0][0].value == pytest.approx(100 * sum(errors) / sum(s.counts.words for s in one))


def test_segments_by_hand() -> None:
    """Two good words end a segment; segments without errors do not count."""
    ref = "a b c d e f g h"
    one = Sentence(name="u", speaker="s", edits=nist.align_texts(ref, "x b c d e f g h", Options()))
    two = Sentence(name="u", speaker="s", edits=nist.align_texts(ref, "a b c d x x g h", Options()))
    test = mapsswe([one], [two])
    assert (test.segments, test.mean) == (2, pytest.approx((1 - 2) / 2))
    near = Sentence(
        name="u", speaker="s", edits=nist.align_texts(ref, "a x c d e f g h", Options())
    )
    assert mapsswe([one], [near]).segments == 1  # b is right in one of them only


@given(st.integers(0, 1000), st.integers(0, 1000))
@settings(max_examples=20)
def test_matched_pairs_invariants(a: int, b: int) -> None:
    one, two = random_sentences(a, 20, 0.3), random_sentences(b, 20, 0.3)
    there, back = mapsswe(one, two), mapsswe(two, one)
    assert (there.segments, there.p) == (back.segments, pytest.approx(back.p))
    assert there.mean == pytest.approx(-back.mean)
    assert 0.0 <= there.p <= 1.0
    assert mapsswe(one, one).p == 1.0
    errors = nist.total(one).errors - nist.total(two).errors
    assert there.mean * there.segments == pytest.approx(errors)


def test_intervals_hold_their_values() -> None:
    one, two = random_sentences(1, 120, 0.2), random_sentences(2, 120, 0.35)
    interval = bootstrap(one, seed=1)
    assert interval.low < interval.value < interval.high
    assert interval.value == pytest.approx(nist.total(one).wer)
    assert bootstrap(one, seed=1) == interval
    difference = bootstrap_difference_of_rows([one], [two], seed=1)
    assert difference.high < 0
    assert difference.value == pytest.approx(nist.total(one).wer - nist.total(two).wer)
    same = bootstrap_difference_of_rows([one], [one])
    assert (same.low, same.high) == (0.0, 0.0)
    with pytest.raises(ValueError, match="different sets"):
        mapsswe(one, two[:-1])


def test_false_alarms_of_the_matched_pairs_test_are_rare() -> None:
    """Two systems of equal quality: p is under 0.05 in about 5 % of the comparisons."""
    alarms = sum(
        mapsswe(random_sentences(2 * i, 40, 0.3), random_sentences(2 * i + 1, 40, 0.3)).p < 0.05
        for i in range(100)
    )
    assert alarms <= 12


def test_the_command_and_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = []
    for name, errors in (("good", 0.1), ("bad", 0.4)):
        folder = tmp_path / "score" / name / "test"
        folder.mkdir(parents=True)
        scored = random_sentences(3, 60, errors)
        sentences.write(folder / sentences.FILE, scored)
        assert sentences.read(folder) == scored
        paths.append(str(folder))
    assert main(["significance", *paths, "--out", str(tmp_path / "out.json")]) == 0
    report = json.loads((tmp_path / "out.json").read_text())
    assert list(report["runs"]) == ["good", "bad"]
    assert report["pairs"][0]["p"] < 0.01
    assert "| good - bad | -" in capsys.readouterr().out
    assert main(["significance", paths[0], paths[0]]) == 2
    (tmp_path / "score/bad/test" / sentences.FILE).write_text('{"name": "u"}\n')
    assert main(["significance", *paths]) == 2
    assert "sentences.jsonl:1: damaged" in capsys.readouterr().err


def test_folders_of_runs_are_told_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They have a folder for each set, and one name for all: that of the folder above."""
    paths = [tmp_path / "score" / name for name in ("single-1", "ssgd-2")]
    for folder in paths:
        folder.mkdir(parents=True)
    arguments = ["significance", *map(str, paths)]
    assert main(arguments) == 2
    told = capsys.readouterr().err
    assert f"{paths[0]}/sentences.jsonl: missing. `hadpsgd score` writes it" in told
    for name in ("dev", "swb"):
        (paths[0] / name).mkdir()
        sentences.write(paths[0] / name / sentences.FILE, random_sentences(3, 5, 0.1))
    assert main(arguments) == 2
    told = capsys.readouterr().err
    assert f"{paths[0]}/sentences.jsonl: missing. Give the folder of one set: " in told
    assert f"{paths[0]}/dev or {paths[0]}/swb\n" in told
    one = str(paths[0] / "dev")
    assert main(["significance", one, one]) == 2
    assert "as many different names" in capsys.readouterr().err


def test_scorings_that_do_not_belong_together(tmp_path: Path) -> None:
    """Of other speakers, after a change of utt2spk, or with a sentence twice."""
    edits = nist.align_texts("a", "b", Options())
    one = [Sentence(name=f"u{i}", speaker=f"s{i % 3}", edits=edits) for i in range(6)]
    other = [replace(one[0], speaker="s9"), *one[1:]]
    for compared in (mapsswe_of_rows, bootstrap_difference_of_rows):
        with pytest.raises(ValueError, match="the speaker of u0 is not the same"):
            compared([one], [other])
    sentences.write(tmp_path / sentences.FILE, [*one, one[0]])
    with pytest.raises(UserError, match=f"{sentences.FILE}:7: damaged .u0 a second time"):
        sentences.read(tmp_path)
