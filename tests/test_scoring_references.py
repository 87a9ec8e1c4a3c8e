"""References: the rules of a GLM, and the STM and GLM that a data directory brings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from drawn_sentences import needs_sclite
from hypothesis import given, settings
from hypothesis import strategies as st

from hadpsgd.corpus.datadir import DataDir
from hadpsgd.corpus.glm import Glm, Rule
from hadpsgd.corpus.glm import read as rules_of
from hadpsgd.corpus.stm import Segment
from hadpsgd.errors import UserError
from hadpsgd.scoring import formats, glm, nist
from hadpsgd.scoring.filters import Filters
from hadpsgd.scoring.formats import TimedWord
from hadpsgd.scoring.reference import Reference, TextFilter

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


def test_a_glm_that_begins_with_a_rule(tmp_path: Path) -> None:
    """Its first word would be the mark of comments."""
    (tmp_path / "glm").write_text("[HI] => [HELLO]\n[A] => [B]\n")
    with pytest.raises(UserError, match="glm:1: the first line says how comments begin"):
        rules_of(tmp_path / "glm", "ctm")


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
