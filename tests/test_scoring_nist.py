"""NIST's files and tools: hubscr's example, what no CTM or STM may say, sclite where it is."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from drawn_sentences import files_of, needs_sclite, random_sentences

from hadpsgd.cli import main
from hadpsgd.corpus import stm
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.corpus.glm import read as rules_of
from hadpsgd.errors import UserError
from hadpsgd.scoring import formats, nist, sclite, sentences
from hadpsgd.scoring.filters import Filters
from hadpsgd.scoring.nist import Options
from hadpsgd.scoring.reference import Reference


def test_hubscrs_filter_to_the_word(shared: Path) -> None:
    folder = shared / "sctk/hubscr"
    reference = stm.read(folder / "lvc_refe.notag.noat.stm")
    words = formats.read_ctm(folder / "lvc_hyp.notag.ctm")
    filtered = Reference(reference, folder / "example.glm").filtered(words)
    wanted = stm.read(folder / "lvc_refe.notag.noat.stm.filt")
    assert [s.text for s in filtered[0]] == [s.text for s in wanted]
    wanted_words = formats.read_ctm(folder / "lvc_hyp.notag.ctm.filt")
    assert [w.word for w in filtered[1]] == [w.word for w in wanted_words]
    times = [(w.begin, w.duration) for w in filtered[1]]
    assert times == [pytest.approx((w.begin, w.duration), abs=6e-4) for w in wanted_words]


def test_hubscrs_counts_from_unfiltered_files(shared: Path) -> None:
    folder = shared / "sctk/hubscr"
    reference = Reference(stm.read(folder / "lvc_refe.notag.noat.stm"), folder / "example.glm")
    words = formats.read_ctm(folder / "lvc_hyp.notag.ctm")
    wanted = sclite.parse_raw((folder / "lvc_hyp.notag.ctm.filt.raw").read_text())
    assert len(wanted) == 5
    assert sclite.differences(nist.by_speaker(reference.score(words)), wanted) == []


def test_any_recognisers_ctm(
    shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shared / "sctk/hubscr"
    call = ["score-ctm", "--stm", str(folder / "lvc_refe.notag.noat.stm")]
    rules = ["--glm", str(folder / "example.glm")]
    out = tmp_path / "out"
    hyp = folder / "lvc_hyp.notag.ctm"
    assert main([*call, *rules, "--ctm", str(hyp), "--out", str(out)]) == 0
    wanted = sclite.parse_raw((folder / "lvc_hyp.notag.ctm.filt.raw").read_text())
    report = json.loads((out / "wer.json").read_text())
    errors = {name: counts["errors"] for name, counts in report["speakers"].items()}
    assert errors == {name: count.errors for name, count in wanted.items()}
    assert nist.total(sentences.read(out)).errors == report["errors"] == sum(errors.values())
    lines = hyp.read_text().splitlines()
    (tmp_path / "unsorted.ctm").write_text("\n".join(reversed(lines)))
    assert main([*call, "--ctm", str(tmp_path / "unsorted.ctm"), "--out", str(out)]) == 2
    assert re.search(r"unsorted\.ctm:\d+: .* not in order\. Sort it", capsys.readouterr().err)
    file, channel, begin, _, _, *_ = lines[0].split()
    longer = f"{file} {channel} {begin} 99 long"
    (tmp_path / "overlapping.ctm").write_text("\n".join([longer, *lines[1:]]))
    assert main([*call, "--ctm", str(tmp_path / "overlapping.ctm"), "--out", str(out)]) == 2
    assert re.search(r"overlapping\.ctm:2: .* overlaps 'long'", capsys.readouterr().err)


def test_confidences_and_references_that_nothing_is_scored_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ctm, reference = tmp_path / "a.ctm", tmp_path / "a.stm"
    call = ["score-ctm", "--stm", str(reference), "--ctm", str(ctm), "--out", str(tmp_path / "o")]

    def refused() -> str:
        assert main(call) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        return said

    reference.write_text("f a s 0 5 yes\n")
    for confidence in ("1.5", "nan", "-3.2", "high"):
        ctm.write_text(f"f a 0 1 yes {confidence}\n")
        assert f"a.ctm:1: confidence {confidence} is not from 0 to 1" in refused()
    ctm.write_text("f a 0 1 yes NA\n")
    assert main(call) == 0
    assert "a.ctm: 0.00 % of 1 words" in capsys.readouterr().err
    for nothing in (
        "f a s 0 5\n",
        "f a s 0 5 IGNORE_TIME_SEGMENT_IN_SCORING\n",
    ):
        reference.write_text(nothing)
        said = refused()
        assert "a.stm: nothing to score" in said and "nan" not in said


@needs_sclite
def test_sclite_itself_agrees() -> None:
    reference, words = files_of(random_sentences(1, 60, 0.4))
    ours = nist.by_speaker(nist.score_ctm(reference, words))
    verdict = sclite.run(reference, words, Options())
    assert verdict is not None
    assert verdict.failure == ""
    assert sclite.differences(ours, verdict.speakers) == []
    wrong = {name: replace(counts, sub=counts.sub + 1) for name, counts in ours.items()}
    assert sclite.differences(wrong, verdict.speakers) == sorted(ours)
    checked = Reference(reference).checked(words, nist.score_ctm(reference, words))
    assert checked == {"tool": "sclite", "agrees": True, "different_speakers": []}


@needs_sclite
def test_hubscr_itself_agrees(shared: Path) -> None:
    folder = shared / "sctk/hubscr"
    reference = Reference(stm.read(folder / "lvc_refe.notag.noat.stm"), folder / "example.glm")
    words = formats.read_ctm(folder / "lvc_hyp.notag.ctm")
    checked = reference.checked(words, reference.score(words))
    assert checked == {"tool": "hubscr", "agrees": True, "different_speakers": []}


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    """Windows' editors write one."""
    mark = b"\xef\xbb\xbf"
    (tmp_path / "a.stm").write_bytes(mark + b"r1 A ann 0.0 2.0 HELLO\n")
    (tmp_path / "a.ctm").write_bytes(mark + b"r1 A 0.5 0.2 HELLO\n")
    (tmp_path / "a.glm").write_bytes(mark + b";; rules\n[HI] => [HELLO]\n")
    assert stm.read(tmp_path / "a.stm")[0].file == "r1"
    assert formats.read_ctm(tmp_path / "a.ctm")[0].file == "r1"
    assert rules_of(tmp_path / "a.glm", "ctm").filter("hi") == "HELLO"


@pytest.mark.parametrize("time", ["nan", "inf", "-inf", "1e999"])
def test_times_that_are_no_numbers_are_refused(tmp_path: Path, time: str) -> None:
    path = tmp_path / "a"
    for line in (f"r1 A ann {time} 2.0 HELLO", f"r1 A ann 0.0 {time} HELLO"):
        path.write_text(line + "\n")
        with pytest.raises(UserError, match="a:1: not `file channel speaker begin end text`"):
            stm.read(path)
    for line in (f"r1 A {time} 0.2 HELLO", f"r1 A 0.0 {time} HELLO"):
        path.write_text(line + "\n")
        with pytest.raises(UserError, match="a:1: not `file channel begin duration word`"):
            formats.read_ctm(path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a { b } c", "1 0.00: '{' would not be scored as a word: NIST's tools take { a / b }"),
        ("home @ last", "1 0.00: '@' would not be scored as a word"),
        ("a {b c}", "1 0.00: '{b' would not be scored as a word"),
        ("a / b a@b", ""),
        ("a [{}] b", ""),
    ],
)
def test_transcripts_that_are_no_stm(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "utt2spk").write_text("a-1 a\n")
    (tmp_path / "text").write_text(f"a-1 {text}\n")
    data, filters = DataDir.read(tmp_path, audio=False), Filters(frozenset(), (r"\[.*\]",))
    if not told:
        assert Reference.of(data, {}, filters).segments
        return
    with pytest.raises(UserError, match=re.escape(f"text: a-1 {told}")):
        Reference.of(data, {}, filters)


def test_a_recording_whose_lines_were_comments(tmp_path: Path) -> None:
    (tmp_path / "utt2spk").write_text(";;a-1 ;;a\n")
    (tmp_path / "text").write_text(";;a-1 yes\n")
    with pytest.raises(UserError, match=r"recording ';;a-1' cannot be scored: .* are comments"):
        Reference.of(DataDir.read(tmp_path, audio=False), {}, Filters())
