"""Recognised words that hold the letters of NIST's marks: words like any other, as for sclite."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus_data import write_lines

from hadpsgd.corpus.datadir import DataDir
from hadpsgd.corpus.stm import Segment
from hadpsgd.errors import UserError
from hadpsgd.scoring import nist, sclite
from hadpsgd.scoring.filters import Filters
from hadpsgd.scoring.formats import TimedWord
from hadpsgd.scoring.nist import Options
from hadpsgd.scoring.reference import Reference, TextFilter

LETTERS = ["{", "}", "/", "{x}", "x/y", "}{"]
GLM = [";; a test", "* name 't'", " WON'T => [{WON'T / WILL NOT}] / [ ] __ [ ]"]


def ctm(words: list[str]) -> list[TimedWord]:
    """Half a second each; what stands in one string shares it."""
    return [
        TimedWord(file="a-1", channel="1", begin=number / 2, duration=0.5, word=word)
        for number, together in enumerate(words)
        for word in together.split()
    ]


def kinds(said: list[nist.Sentence]) -> str:
    return "".join(edit.kind for sentence in said for edit in sentence.edits)


@pytest.mark.parametrize("word", LETTERS)
@pytest.mark.parametrize("first", ["a", "<ALT_BEGIN> a <ALT> q <ALT_END>"])
def test_a_word_of_a_ctm(word: str, first: str) -> None:
    segment = Segment(file="a-1", channel="1", speaker="s", begin=0.0, end=9.0, text="a x b")
    words = ctm([first, word, "b"])
    scored = nist.score_ctm([segment], words)
    assert kinds(scored) == "CSC"
    if sclite.command("sclite"):
        verdict = sclite.run([segment], words, Options())
        assert verdict is not None and verdict.failure == ""
        assert sclite.differences(nist.by_speaker(scored), verdict.speakers) == []


@pytest.mark.parametrize("rules", [[], GLM])
def test_tuning_counts_as_scoring_does(tmp_path: Path, rules: list[str]) -> None:
    """It ended with one line about braces, after all of the training."""
    write_lines(tmp_path / "utt2spk", ["a-1 a"])
    write_lines(tmp_path / "text", ["a-1 a x i won't"])
    if rules:
        write_lines(tmp_path / "glm", rules)
    data, filters = DataDir.read(tmp_path, audio=False), Filters()
    rule = TextFilter(data, filters)
    for heard, wanted in (
        ("a { i won't", "CSCC"),
        ("a } i won't", "CSCC"),
        ("a {x} i won't", "CCCC" if rules else "CSCC"),  # hubscr's filter takes the braces away
    ):
        said = rule.ref(data.utterances["a-1"].text)
        tuned = nist.align_texts(said, rule.hyp(heard), rule.options)
        scored = Reference.of(data, {"a-1": 9.0}, filters).score(ctm(heard.split()))
        assert kinds(scored).startswith(wanted[:3])
        assert sorted(edit.kind for edit in tuned) == sorted(kinds(scored))


@pytest.mark.parametrize(
    ("words", "told"),
    [(["<ALT_BEGIN> a"], "'{' without '}'"), (["a <ALT_END>"], "'}' without '{'")],
)
def test_marks_that_do_not_close(words: list[str], told: str) -> None:
    segment = Segment(file="a-1", channel="1", speaker="s", begin=0.0, end=9.0, text="a")
    with pytest.raises(UserError, match=told):
        nist.score_ctm([segment], ctm(words))
