"""Scoring: to the digit as NIST's tools on their own test data, and invariants."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hadpsgd.corpus import stm
from hadpsgd.corpus.stm import Segment
from hadpsgd.errors import UserError
from hadpsgd.scoring import formats, nist
from hadpsgd.scoring.align import Counts, Edit, align
from hadpsgd.scoring.formats import TimedWord
from hadpsgd.scoring.network import Network, NetworkError, linear, parse
from hadpsgd.scoring.nist import Options

_ROW = re.compile(r"\s*\|\s*(\S+)\s*\|\s*(\d+)\s+(\d+)\s*\|" + r"\s*(\d+)" * 6 + r"\s*\|")


@pytest.fixture(scope="module")
def sctk(shared: Path) -> Path:
    return shared / "sctk"


def raw_table(path: Path) -> dict[str, tuple[int, ...]]:
    """Counts by speaker of sclite's .raw report."""
    rows = (_ROW.match(line) for line in path.read_text().splitlines())
    return {row[1]: tuple(map(int, row.groups()[1:])) for row in rows if row and row[1] != "Mean"}


def transcripts(path: Path) -> dict[str, str]:
    """Texts of a TRN file by utterance: lines `text (utterance)`."""
    pairs = (line.rstrip().rstrip(")").rsplit("(", 1) for line in path.read_text().splitlines())
    return {name.lower(): text for text, name in pairs}


def our_table(sentences: list[nist.Sentence]) -> dict[str, tuple[int, ...]]:
    table = {**nist.by_speaker(sentences), "Sum": nist.total(sentences)}
    return {
        name: (c.sentences, c.words, c.correct, c.sub, c.dele, c.ins, c.errors, c.wrong_sentences)
        for name, c in table.items()
    }


def test_sclite_test1_transcripts(sctk: Path) -> None:
    """Transcripts by utterance; a speaker is the first three letters of its name."""
    ref, hyp = (transcripts(sctk / f"sclite/csrnab.{side}") for side in ("ref", "hyp"))
    assert ref.keys() == hyp.keys()
    ours = our_table(
        [
            nist.Sentence(
                name=name, speaker=name[:3], edits=nist.align_texts(text, hyp[name], Options())
            )
            for name, text in ref.items()
        ]
    )
    assert ours == raw_table(sctk / "sclite/test1.raw")
    assert len(ours) == 4


def test_sclite_test3_times(sctk: Path) -> None:
    segments_ = stm.read(sctk / "sclite/lvc_ref.stm")
    words = formats.read_ctm(sctk / "sclite/lvc_hyp.ctm")
    assert our_table(nist.score_ctm(segments_, words)) == raw_table(sctk / "sclite/test3.raw")


def test_hubscr_after_the_filter(sctk: Path) -> None:
    segments_ = stm.read(sctk / "hubscr/lvc_refe.notag.noat.stm.filt")
    words = formats.read_ctm(sctk / "hubscr/lvc_hyp.notag.ctm.filt")
    ours = our_table(
        nist.score_ctm(segments_, words, Options(fragments=True, optional_deletion=True))
    )
    assert ours == raw_table(sctk / "hubscr/lvc_hyp.notag.ctm.filt.raw")


def kinds(ref: str, hyp: str, **options: bool) -> str:
    edits = nist.align_texts(ref, hyp, Options(**options))
    return "".join(edit.kind for edit in edits)


def test_marks_of_transcripts() -> None:
    assert kinds("a b", "A B") == "CC"
    assert kinds("a { um / uh / @ } b", "a b") == "CC"
    assert kinds("a { um / uh / @ } b", "a uh b") == "CCC"
    assert kinds("a { um / uh } b", "a b") == "CDC"
    assert kinds("{ a { b / c } / d } e", "a c e") == "CCC"
    assert kinds("{ a { b / c } / d } e", "d e") == "CC"
    assert kinds("either/or", "either/or") == "C"
    assert kinds("a;tag1;tag2 x\\;y b*", "a x\\;y b") == "CCC"
    assert kinds("th- cat", "the cat") == "SC"
    assert kinds("th- cat", "the cat", fragments=True) == "CC"
    assert kinds("-ing cat", "going cat", fragments=True) == "CC"
    assert kinds("(uh) cat", "cat") == "DC"
    assert kinds("(uh) cat", "cat", optional_deletion=True) == "CC"
    assert kinds("(uh) cat", "uh cat", optional_deletion=True) == "CC"
    assert kinds("(uh) cat", "a cat", optional_deletion=True) == "SC"
    assert kinds("{ a / } b", "b") == "C"


@pytest.mark.parametrize("text", ["a { b / c", "a } b", "{ a / { b } c"])
def test_braces_that_do_not_fit(text: str) -> None:
    with pytest.raises(NetworkError):
        parse(text)
    with pytest.raises(UserError, match="utterance 7"):
        nist.align_texts(text, "a", Options(), "utterance 7")


WORDS = st.lists(st.sampled_from(["a", "b", "c", "d", "e", "f"]), max_size=12)


@given(WORDS, WORDS)
@settings(max_examples=200)
def test_alignments_account_for_every_word(ref: list[str], hyp: list[str]) -> None:
    edits = align(linear(ref), linear(hyp))
    assert [edit.ref for edit in edits if edit.ref is not None] == ref
    assert [edit.hyp for edit in edits if edit.hyp is not None] == hyp
    assert all((edit.kind == "C") == (edit.ref == edit.hyp) for edit in edits)
    counts = Counts.of(edits)
    assert counts.words == len(ref)
    assert counts.correct + counts.sub + counts.ins == len(hyp)
    assert 4 * counts.sub + 3 * (counts.ins + counts.dele) == least_cost(ref, hyp)


def least_cost(ref: list[str], hyp: list[str]) -> int:
    """Cost of the best alignment by the textbook's recursion."""
    row = [3 * j for j in range(len(hyp) + 1)]
    for word in ref:
        new = [row[0] + 3]
        for j, other in enumerate(hyp):
            new.append(min(row[j] + 4 * (word != other), row[j + 1] + 3, new[j] + 3))
        row = new
    return row[-1]


def paths(network: Network) -> set[tuple[str, ...]]:
    """All word sequences of a network, @ left out."""
    upto: list[set[tuple[str, ...]]] = [{()}]
    for word, before in zip(network.words[1:], network.before[1:], strict=True):
        own = () if word.is_null else (word.text,)
        upto.append({path + own for arc in before for path in upto[arc]})
    return set().union(*(upto[end] for end in network.ends))


@st.composite
def texts(draw: st.DrawFn, depth: int = 2) -> str:
    """Transcripts with nested alternations."""
    parts = []
    for _ in range(draw(st.integers(0, 4))):
        if depth and draw(st.integers(0, 3)) == 0:
            options = draw(st.lists(texts(depth - 1), min_size=1, max_size=3))
            parts.append("{ " + " / ".join(option or "@" for option in options) + " }")
        else:
            parts.append(draw(st.sampled_from("abcd")))
    return " ".join(parts)


@given(texts(), st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=6))
@settings(max_examples=150)
def test_alternations_are_as_good_as_their_best_choice(text: str, hyp: list[str]) -> None:
    network = parse(text)
    edits = align(network, linear(hyp))
    counts = Counts.of(edits)
    cost = 4 * counts.sub + 3 * (counts.ins + counts.dele)
    assert cost == min(least_cost(list(path), hyp) for path in paths(network))
    assert tuple(edit.ref for edit in edits if edit.ref is not None) in paths(network)


def test_words_go_to_the_segment_of_their_middle() -> None:
    reference = [
        Segment(file="f", channel="a", speaker="s1", begin=0, end=1, text="a b"),
        Segment(file="f", channel="a", speaker="s2", begin=1, end=2, text="c"),
    ]
    words = [
        TimedWord(file="F", channel="A", begin=0.0, duration=0.5, word="a"),
        TimedWord(file="F", channel="A", begin=0.7, duration=0.5, word="b"),  # middle 0.95
        TimedWord(file="F", channel="A", begin=1.2, duration=0.2, word="c"),
        TimedWord(
            file="F", channel="A", begin=5.0, duration=0.2, word="late"
        ),  # the last segment takes all
    ]
    table = our_table(nist.score_ctm(reference, words))
    assert table["s1"][2:6] == (2, 0, 0, 0)
    assert table["s2"][2:6] == (1, 0, 0, 1)
    ignored = [
        Segment(
            file="f",
            channel="a",
            speaker="s1",
            begin=0,
            end=1,
            text="IGNORE_TIME_SEGMENT_IN_SCORING",
        ),
        reference[1],
    ]
    assert list(our_table(nist.score_ctm(ignored, words))) == ["s2", "Sum"]
    with pytest.raises(UserError, match="no file 'g' with channel 'a'"):
        nist.score_ctm(
            reference, [*words, TimedWord(file="g", channel="a", begin=0, duration=1, word="x")]
        )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no segments"),
        (";; only a comment\n", "no segments"),
        ("f a s1 0.0\n", ":1: not `file channel speaker begin end text`"),
        ("f a s1 0.0 1.0 a\nf a s1 x 1.0 a\n", ":2: not `file"),
        ("f a s1 2.0 1.0 a\n", ":1: the segment ends before it begins"),
        ("f a s1 2 3 b\n;; x\nf A s1 0 1 a\n", ":3: the segment at 0.00 comes after 2.00: not in"),
        ("f a s1 0 1 a\nf b s2 0 1 a\nF A s1 2 3 b\n", ":3: the segments of F A are in pieces"),
    ],
)
def test_faults_of_stm_files(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "stm").write_text(content)
    with pytest.raises(UserError, match=re.escape(message)):
        stm.read(tmp_path / "stm")
    # overlapping segments and a file after another are in order
    (tmp_path / "stm").write_text("g a s 5 9 x\ng a s 5 6 y\ng b s 0 1 z\nf a s 0 1 w\n")
    assert len(stm.read(tmp_path / "stm")) == 4


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("f a 0.0 0.1\n", ":1: not `file channel begin duration word`"),
        ("f a 0.0 x w\n", ":1: not `file"),
        ("f a 0.0 -1 w\n", ":1: a negative duration"),
        ("f a 0.0 0.1 w 1.0005\nf a 1.0 0.1 w 97\n", ":2: confidence 97 is not from 0 to 1"),
        ("f a 0.0 0.1 w -0.5\n", ":1: confidence -0.5 is not from 0 to 1"),
        ("f a 0.0 0.1 w nan\n", ":1: confidence nan is not from 0 to 1"),
        ("f a 0.0 0.1 w sure\n", ":1: confidence sure is not from 0 to 1"),
        ("f a 1.0 0.5 w\nf a 0.5 0.1 v\n", ":2: 'v' at 0.50 comes after 1.00: not in order"),
        ("f a 1.0 0.5 w\nf a 1.2 0.1 v\n", ":2: 'v' at 1.20 overlaps 'w', which ends at 1.50"),
    ],
)
def test_faults_of_ctm_files(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "ctm").write_text(content)
    with pytest.raises(UserError, match=re.escape(message)):
        formats.read_ctm(tmp_path / "ctm")
    # channels are apart from one another, words of alternations may share times
    good = "f a 1 0.5 w\nf b 0 1 v\nf b * * <ALT_BEGIN>\nf b 1 2 x\nf b * * <ALT>\nf b 1 2 y\n"
    (tmp_path / "ctm").write_text(good + "f b * * <ALT_END>\nf b 3 1 z\n")
    assert len(formats.read_ctm(tmp_path / "ctm")) == 8


def test_files_come_back_as_they_were_written(tmp_path: Path) -> None:
    reference = [
        Segment(file="f", channel="a", speaker="s", begin=0.0, end=1.5, text="x y", label="<o,f>"),
        Segment(file="f", channel="a", speaker="s", begin=2, end=3, text=""),
        Segment(file="f", channel="a", speaker="s", begin=3, end=4, text="<b> x", label="<O>"),
    ]
    words = [
        TimedWord(file="f", channel="a", begin=0.25, duration=0.5, word="x"),
        TimedWord(file="f", channel="a", begin=1.0, duration=0.25, word="y", confidence=0.875),
    ]
    unlabelled = [*reference[:2], replace(reference[2], label="")]
    formats.write_lines(tmp_path / "ctm", words)
    for segments in (reference, unlabelled):  # `<b>` is a word, and not a label
        formats.write_lines(tmp_path / "stm", segments)
        assert stm.read(tmp_path / "stm") == reference
    assert formats.read_ctm(tmp_path / "ctm") == words


def test_edits_are_small() -> None:
    assert not hasattr(Edit(kind="C", ref="a", hyp="a"), "__dict__")
