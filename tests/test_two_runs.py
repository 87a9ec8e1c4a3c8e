"""Two runs' errors side by side: counts by hand, columns, the command, what a browser shows."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import browser
import pytest
from corpus_data import make_data
from hypothesis import given
from hypothesis import strategies as st

from hadpsgd.cli import USER_ERROR, main
from hadpsgd.corpus.stm import Segment
from hadpsgd.reports.stretches import RECOGNISED
from hadpsgd.reports.two_runs import EQUAL, FIRST, RIGHT, SECOND, TwoRuns, outcome
from hadpsgd.scoring import nist
from hadpsgd.scoring.formats import TimedWord
from hadpsgd.scoring.nist import Options, Sentence

STM = """call A ann 0.50 2.25 AT&T <B> IT'S
call A ann 3.00 4.50 BYE
call B bob 2.50 3.50 HI { ANN / ANNE }
call B bob 5.00 9.99 BYE BYE
"""
FIRST_CTM = """call A 0.60 0.20 AT&T
call A 1.00 0.20 <B>
call A 1.50 0.20 ITS
call B 2.60 0.20 HI
call B 2.90 0.20 ANN
call B 6.00 0.20 BYE
call B 6.30 0.20 BYE
"""
SECOND_CTM = """call A 0.60 0.20 AT&T
call A 0.80 0.10 UH
call A 1.50 0.20 IT'S
call A 3.50 0.20 BYE
call B 2.60 0.20 HI
call B 2.90 0.20 ANNE
call B 6.00 0.20 BYE
call B 6.30 0.20 BYE
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A data directory (a recording of two channels) and two runs scored on one set."""
    make_data(tmp_path)
    (tmp_path / "stm").write_text(STM)
    for name, text in (("a&b", FIRST_CTM), ("<other>", SECOND_CTM)):
        (tmp_path / "ctm").write_text(text)
        arguments = ["--stm", str(tmp_path / "stm"), "--ctm", str(tmp_path / "ctm")]
        out = str(tmp_path / "score" / name / "train")
        assert main(["score-ctm", *arguments, "--out", out]) == 0
    return tmp_path


def compared(place: Path, *more: str, below: str = "") -> int:
    runs = [str(place / "score" / name / below) for name in ("a&b", "<other>")]
    return main(["compare-errors", *runs, *more, "--out", str(place / "page.html")])


def blocks(place: Path, kind: str) -> Any:
    text = (place / "page.html").read_text()
    found = re.findall(rf'class="{kind}">(.*?)</script>', text, re.DOTALL)
    (block,) = map(json.loads, found)
    return block


def texts(row: dict[str, Any]) -> list[list[tuple[str, str]]]:
    """Of each column the text and kind of each line."""
    return [[(cell[0], (cell[1:2] or [""])[0]) for cell in cells] for cells in row["columns"]]


def test_the_small_case_as_counted_by_hand(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of one set, then of the folders of runs: the same."""
    data = str(place / "data")
    assert compared(place, "--data", f"{data}/train", below="train") == 0
    alone = (place / "page.html").read_text()
    assert compared(place, "--data", data) == 0
    text = (place / "page.html").read_text()
    assert alone == text
    # without the sentence whose alternatives the runs are given otherwise
    said = "3 both right, 1 first alone right, 2 second alone right, 0 both wrong"
    assert said in capsys.readouterr().err and "Without 1 sentences" in text
    rows = {row["name"]: row for row in blocks(place, "rows")}
    assert list(rows) == ["ann-2", "ann-1"]
    assert [rows[n]["outcome"] for n in rows] == [SECOND, EQUAL]
    assert texts(rows["ann-1"]) == [
        [("at&t", ""), ("at&t", ""), ("at&t", "")],
        [("<b>", ""), ("<b>", ""), ("uh", "S")],
        [("it's", ""), ("its", "S"), ("it's", "")],
    ]
    assert texts(rows["ann-2"]) == [[("bye", ""), ("", "D"), ("bye", "")]]
    # said where the run that has it right heard it: 0.5 s after the clip begins
    assert rows["ann-2"]["columns"][0][0][2:5] == [0.5, 0.7, RECOGNISED]
    assert len(blocks(place, "clips")) == 2
    assert "&lt;other&gt;" in text and "<other>" not in text and "a&amp;b" in text
    words = re.findall(r'title="(.*?)" data-pattern="(.*?)">(\d)<', text)
    counts = {html.unescape(title): int(number) for title, _, number in words}
    assert counts["<b> (first alone right)"] == counts["it's (second alone right)"] == 1
    assert counts["bye (first alone right)"] == 0 and counts["bye (second alone right)"] == 1


def test_limits_are_told(place: Path) -> None:
    assert compared(place, "--listed", "1") == 0
    text = (place / "page.html").read_text()
    assert "1 more are wrong and not listed" in text and "1 of those listed have no audio" in text


def test_what_cannot_be_compared(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compared(place, "--names", "x", "x") == USER_ERROR
    assert "both runs are called x" in capsys.readouterr().err
    assert compared(place, "--sets", "gone") == USER_ERROR
    assert "missing" in capsys.readouterr().err
    file = place / "score/<other>/train/sentences.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[1:]))
    assert compared(place) == USER_ERROR
    assert "scored on different sets" in capsys.readouterr().err
    assert not (place / "page.html").exists()


def test_a_run_that_diverged(place: Path) -> None:
    folder = place / "score/<other>/train"
    for file in folder.iterdir():
        file.unlink()
    (folder / "diverged.json").write_text('{"diverged": "loss > 9"}')
    assert compared(place, "--sets", "train") == 0
    assert "loss &gt; 9" in (place / "page.html").read_text()


SAID = st.lists(st.sampled_from(["a", "b", "c"]), max_size=6)


@given(st.lists(st.tuples(SAID, SAID, SAID), min_size=1, max_size=4))
def test_counts_add_up_to_those_of_each_run(spoken: list[tuple[list[str], ...]]) -> None:
    """Columns side by side give back both alignments, and all counts."""

    def sentence(number: int, ref: list[str], hyp: list[str]) -> Sentence:
        edits = nist.align_texts(" ".join(ref), " ".join(hyp), Options())
        words = [
            TimedWord(file="f", channel="1", begin=i, duration=0.5, word=w)
            for i, w in enumerate(hyp)
        ]
        segment = Segment(file="f", channel="1", speaker="s", begin=0, end=9, text=" ".join(ref))
        return Sentence(
            name=str(number), speaker="s", edits=edits, segment=segment, words=tuple(words)
        )

    first = [sentence(i, ref, one) for i, (ref, one, _) in enumerate(spoken)]
    second = [sentence(i, ref, two) for i, (ref, _, two) in enumerate(spoken)]
    runs = TwoRuns.of(first, second[::-1])
    for pair, (ref, one, two) in zip(runs.pairs, spoken, strict=True):
        assert [c.ref for c in pair.columns if c.ref] == ref
        for side, said in (("first", one), ("second", two)):
            edits = [e for c in pair.columns if (e := getattr(c, side).edit)]
            assert [e.hyp for e in edits if e.hyp] == said
            assert edits == getattr(pair, side).edits
    counts = runs.totals
    words = runs.words
    assert sum(words.values()) == counts[0].words == counts[1].words
    assert words["both right"] + words["first alone right"] == counts[0].correct
    assert words["both right"] + words["second alone right"] == counts[1].correct
    assert sum(r.first for r in runs.changed) == words["first alone right"]
    assert sum(r.second for r in runs.changed) == words["second alone right"]
    assert sum(runs.sentences.values()) == len(spoken)
    assert len(runs.wrong) == len(spoken) - runs.sentences[RIGHT]
    gaps = [pair.apart for pair in runs.wrong]
    assert [abs(g) for g in gaps] == sorted(map(abs, gaps), reverse=True)
    assert all((outcome(p) == FIRST) == (p.apart < 0) for p in runs.pairs)


@pytest.mark.skipif(not browser.PROGRAM, reason="Chromium is not installed")
def test_a_browser_filters_by_which_run_is_better(place: Path) -> None:
    assert compared(place, "--data", str(place / "data")) == 0
    check = """<script>
      const section = document.querySelector("section"), seen = {};
      const names = () => [...section.querySelectorAll("article code")].map(c => c.textContent);
      seen.all = names();
      const which = section.querySelector("[data-filter=outcome]");
      which.value = "second better"; which.dispatchEvent(new Event("input"));
      seen.second = names();
      which.value = ""; which.dispatchEvent(new Event("input"));
      const button = [...section.querySelectorAll("[data-pattern]")];
      button.find(b => b.title === "<b> (first alone right)").click();
      seen.word = names();
      seen.play = section.querySelectorAll("article [data-play]").length;
      document.body.innerHTML = '<pre id="seen"></pre>';
      document.body.firstChild.textContent = JSON.stringify(seen);
    </script></body>"""
    page = place / "page.html"
    page.write_text(page.read_text().replace("</body>", check))
    with browser.page(1200, 1000) as tab:
        tab.open(page.as_uri(), "document.getElementById('seen')")
        dom = tab.document()
    seen = json.loads(html.unescape(re.findall(r'<pre id="seen">(.*?)</pre>', dom, re.DOTALL)[0]))
    # the whole, three words said, three recognised by each
    assert seen == {
        "all": ["ann-2", "ann-1"], "second": ["ann-2"], "word": ["ann-1"], "play": 10,
    }  # fmt: skip
