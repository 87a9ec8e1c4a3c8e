"""GLM rules, NIST's own tools where they are installed, and significance tests."""

from __future__ import annotations

import json
import math
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hadpsgd.cli import main
from hadpsgd.corpus import stm
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.corpus.glm import Glm, Rule
from hadpsgd.corpus.glm import read as rules_of
from hadpsgd.corpus.stm import Segment
from hadpsgd.errors import UserError
from hadpsgd.scoring import formats, glm, nist, sclite, sentences
from hadpsgd.scoring.filters import Filters
from hadpsgd.scoring.formats import TimedWord
from hadpsgd.scoring.nist import Options, Sentence
from hadpsgd.scoring.reference import Reference, TextFilter
from hadpsgd.scoring.significance import (
    bootstrap,
    bootstrap_difference_of_rows,
    mapsswe,
    mapsswe_of_rows,
)

needs_sclite = pytest.mark.skipif(
    sclite.command("sclite") is None, reason="NIST's sclite is not installed (Debian: sctk)"
)

GLM = """;; a test
* name "test"
* copy_no_hit = 'T'
[ UH HUH ] => [ UHHUH ]
[ UH ] => [ (%HESITATION) ]
 WON'T => [{WON'T / WILL NOT}]
 ST. => SAINT / [ ] __ [ ]
;; INPUT_DEPENDENT_APPLICATION = "hyp"
 COLOUR => COLOR
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    (tmp_path / "glm").write_text(GLM)
    return tmp_path / "glm"


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


def test_rules(rules: Path) -> None:
    ref, hyp = rules_of(rules, "stm"), rules_of(rules, "ctm")
    assert ref.filter("yes uh huh") == "YES UHHUH"
    assert ref.filter("uh yes") == "(%HESITATION) YES"
    assert ref.filter("i won't") == "I {WON'T / WILL NOT}"
    assert ref.filter("st. john best.") == "SAINT JOHN BEST."
    assert (ref.filter("colour"), hyp.filter("colour")) == ("COLOUR", "COLOR")
    assert ref.filter("twenty-one th- -ing") == "TWENTY ONE TH- -ING"
    assert ref.filter("(you know) yes") == "(YOU) (KNOW) YES"
    with pytest.raises(ValueError, match="parentheses"):
        ref.filter("(you (know)")


def test_a_word_that_becomes_two_shares_its_time(rules: Path) -> None:
    words = [
        TimedWord(file="f", channel="a", begin=1.0, duration=0.5, word="twenty-one"),
        TimedWord(file="f", channel="a", begin=2.0, duration=0.5, word="won't"),
    ]
    made = list(glm.filter_words(rules_of(rules, "ctm"), words))
    assert [(w.word, w.begin, w.duration) for w in made[:2]] == [
        ("TWENTY", 1.0, 0.25),
        ("ONE", 1.25, 0.25),
    ]
    assert [w.word for w in made[2:]] == [
        "<ALT_BEGIN>",
        "WON'T",
        "<ALT>",
        "WILL",
        "NOT",
        "<ALT_END>",
    ]
    reference = [
        Segment(file="f", channel="a", speaker="s", begin=0.0, end=3.0, text="TWENTY ONE WILL NOT")
    ]
    assert nist.total(nist.score_ctm(reference, made)).errors == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("A B", ":10: 'A B': a rule needs =>"),
        (" => B", ":10: '=> B': nothing on the left of =>"),
        ("A => {B / C}", ":10: 'A => {B / C}': a context needs __"),
        ("* name test", ":10: '* name test': a setting needs a value in quotes"),
        ("* format 'NIST2'", ":10: format NIST2 is not known"),
    ],
)
def test_faults_of_a_glm_are_named(rules: Path, line: str, message: str) -> None:
    rules.write_text(GLM + line + "\n")
    with pytest.raises(UserError, match=re.escape(message)):
        rules_of(rules, "ctm")


def test_brackets_that_nists_own_files_forget(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules.write_text(GLM + "[ HE'S] => [{ HE'S / HE IS}\n")
    assert rules_of(rules, "ctm").filter("he's") == "{ HE'S / HE IS}"
    assert "glm:10: '[' without ']'" in capsys.readouterr().err
    with pytest.raises(UserError, match="empty"):
        (rules.parent / "empty").write_text("")
        rules_of(rules.parent / "empty", "stm")


@given(st.text("AB ", max_size=12), st.lists(st.tuples(st.text("AB", min_size=1, max_size=2))))
@settings(max_examples=100)
def test_rules_are_applied_once_from_left_to_right(text: str, olds: list[tuple[str]]) -> None:
    applied = Glm(Rule(old=old, new=old.lower()) for (old,) in olds).apply(text)
    assert applied.upper() == text  # nothing is lost
    for (old,) in olds:
        assert old not in applied


def random_sentences(seed: int, count: int, errors: float) -> list[Sentence]:
    """Sentences of one reference, with errors drawn for a system."""
    words = ["a", "b", "c", "d", "e", "f", "g"]
    scored = []
    for i in range(count):
        reference = np.random.default_rng(i).choice(words, 8).tolist()
        draw = np.random.default_rng((seed, i))
        hyp = [w if draw.random() > errors else str(draw.choice(words)) for w in reference]
        hyp = [w for w in hyp if draw.random() > errors / 3]
        segment = Segment(
            file=f"f{i % 4}",
            channel="1",
            speaker=f"spk{i % 6}",
            begin=i,
            end=i + 1,
            text=" ".join(reference),
        )
        step = 1.0 / (len(hyp) + 1)
        timed = [
            TimedWord(file=segment.file, channel="1", begin=i + step * j, duration=step, word=w)
            for j, w in enumerate(hyp)
        ]
        edits = nist.align_texts(segment.text, " ".join(hyp), Options())
        scored.append(
            Sentence(
                name=f"u{i:03d}",
                speaker=segment.speaker,
                edits=edits,
                segment=segment,
                words=tuple(timed),
            )
        )
    return scored


def files_of(scored: list[Sentence]) -> tuple[list[Segment], list[TimedWord]]:
    reference = sorted((s.segment for s in scored if s.segment), key=lambda s: (s.file, s.begin))
    return reference, formats.in_order(w for s in scored for w in s.words)


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


def test_a_glm_that_begins_with_a_rule(tmp_path: Path) -> None:
    """Its first word would be the mark of comments."""
    (tmp_path / "glm").write_text("[HI] => [HELLO]\n[A] => [B]\n")
    with pytest.raises(UserError, match="glm:1: the first line says how comments begin"):
        rules_of(tmp_path / "glm", "ctm")


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


@pytest.mark.usefixtures("rules")
def test_a_data_directory_brings_its_stm_and_glm(tmp_path: Path) -> None:
    (tmp_path / "utt2spk").write_text("a-1 a\n")
    (tmp_path / "text").write_text("a-1 uh i won't\n")
    data = DataDir.read(tmp_path, audio=False)
    reference = Reference.of(data, {"a-1": 2.0}, Filters())
    words = [
        TimedWord(file="a-1", channel="1", begin=0.1 * i, duration=0.1, word=w)
        for i, w in enumerate(["i", "will", "not"])
    ]
    scored = reference.score(words)
    assert nist.total(scored).errors == 0  # the hesitation may be left out
    assert nist.total(scored).words == 4
    text = TextFilter(data, Filters())
    edits = nist.align_texts(text.ref("uh i won't"), text.hyp("i will not"), text.options)
    assert "".join(e.kind for e in edits) == "CCCC"
    (tmp_path / "stm").write_text("a-1 1 a 0 2 i will\n")
    assert nist.total(Reference.of(data, {}, Filters()).score(words)).ins == 1


@pytest.mark.parametrize("glm", [False, True])
def test_a_first_word_that_looks_like_a_label(rules: Path, tmp_path: Path, glm: bool) -> None:
    """NIST's tools took it for one, and so did we where the stm was read again."""
    if glm:  # hubscr wants letters alone in the end
        rules.write_text(GLM.replace("[ UH HUH ]", " <B> => B\n[ UH HUH ]"))
    else:
        rules.unlink()
    (tmp_path / "utt2spk").write_text("a-1 a\na-2 a\n")
    (tmp_path / "text").write_text("a-1 <b> will\na-2 i will\n")
    reference = Reference.of(DataDir.read(tmp_path, audio=False), {"a-1": 2.0}, Filters())
    words = [
        TimedWord(file=file, channel="1", begin=0.1 * i, duration=0.1, word=word)
        for file, said in (("a-1", "<b> will"), ("a-2", "i was"))
        for i, word in enumerate(said.split())
    ]
    scored = reference.score(words)
    assert (nist.total(scored).words, nist.total(scored).errors) == (4, 1)
    formats.write_lines(tmp_path / "again.stm", reference.segments, reference.comments)
    again = Reference.read(stm=tmp_path / "again.stm")
    assert [s.text for s in again.segments] == ["<b> will", "i will"]
    checked = reference.checked(words, scored)
    assert not checked or checked.get("agrees"), checked


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


@needs_sclite
@pytest.mark.usefixtures("rules")
def test_labels_of_an_stm_stay_defined(tmp_path: Path) -> None:
    """hubscr stops at a label that no comment line of the STM defines."""
    (tmp_path / "utt2spk").write_text("a-1 a\n")
    (tmp_path / "text").write_text("a-1 i will\n")
    label = ';; LABEL "O" "Overall" "Overall"'
    (tmp_path / "stm").write_text(f"{label}\na-1 1 a 0 2 <O> i will\n")
    reference = Reference.of(DataDir.read(tmp_path, audio=False), {}, Filters())
    assert reference.comments == (label,)
    words = [
        TimedWord(file="a-1", channel="1", begin=0.1, duration=0.1, word="i"),
        TimedWord(file="a-1", channel="1", begin=0.3, duration=0.1, word="will"),
    ]
    checked = reference.checked(words, reference.score(words))
    assert checked == {"tool": "hubscr", "agrees": True, "different_speakers": []}
