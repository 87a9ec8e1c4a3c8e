"""Alignments word by word: against sclite's own, and against all alignments by the costs."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hadpsgd.scoring import formats, nist, sclite
from hadpsgd.scoring.align import Edit, align
from hadpsgd.scoring.formats import Segment, TimedWord
from hadpsgd.scoring.network import linear
from hadpsgd.scoring.nist import Options

needs_sclite = pytest.mark.skipif(
    sclite.command("sclite") is None, reason="NIST's sclite is not installed (Debian: sctk)"
)
_COLUMN = re.compile(r'([CSDI]),(?:"(.*?)")?,(?:"(.*?)")?(?:,[^:]*)?(?::|$)')

Column = tuple[str, str, str]


def column(kind: str, ref: str | None, hyp: str | None) -> Column:
    """Kind, word of the reference, word of the hypothesis; marks of optional words left out."""
    return kind, (ref or "").strip("()"), (hyp or "").strip("()")


def columns(edits: list[Edit]) -> list[Column]:
    return [column(edit.kind, edit.ref, edit.hyp) for edit in edits]


def by_sclite(
    folder: Path, segments: list[Segment], words: list[TimedWord], *options: str
) -> list[list[Column]]:
    """Its alignments, segment by segment."""
    formats.write_lines(folder / "stm", segments)
    formats.write_lines(folder / "ctm", words)
    call = [*(sclite.command("sclite") or []), "-r", "stm", "stm", "-h", "ctm", "ctm"]
    call += ["-o", "sgml", "stdout", *options]
    said = subprocess.run(call, cwd=folder, check=True, capture_output=True, text=True).stdout
    paths = re.findall(r"<PATH [^\n]*>\n(.*?)\n?</PATH>", said, re.DOTALL)
    return [[column(*found) for found in _COLUMN.findall(path)] for path in paths]


def random_texts(seed: int, count: int) -> list[tuple[str, list[str]]]:
    """References with optional words and alternations, and hypotheses of few different words:
    many alignments cost the same."""
    draws = np.random.default_rng(seed)

    def word() -> str:
        drawn = str(draws.choice(list("abc")))
        return f"({drawn}{drawn})" if draws.random() < 0.3 else drawn * int(draws.integers(1, 3))

    def part() -> str:
        if draws.random() > 0.15:
            return word()
        choices = [word().strip("()") for _ in range(draws.integers(1, 3))]
        return "{ " + " / ".join([*choices, *["@"] * int(draws.integers(0, 2))]) + " }"

    return [
        (
            " ".join(part() for _ in range(draws.integers(1, 9))),
            [word() for _ in range(draws.integers(1, 9))],
        )
        for _ in range(count)
    ]


@needs_sclite
@pytest.mark.parametrize("optional", [True, False])
@pytest.mark.parametrize("large", [False, True])
def test_every_column_is_sclites(
    optional: bool, large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which words stand against each other, also where several alignments cost the same; as short
    texts are aligned, and as long ones are."""
    monkeypatch.setattr("hadpsgd.scoring.align._LARGE", 0 if large else 1 << 30)
    texts = random_texts(1, 1500)
    segments, words = [], []
    for i, (ref, hyp) in enumerate(texts):
        segments.append(Segment(file="f", channel="1", speaker="s", begin=i, end=i + 1, text=ref))
        step = 1.0 / (len(hyp) + 1)
        words += [
            TimedWord(file="f", channel="1", begin=i + step * j, duration=step / 2, word=w)
            for j, w in enumerate(hyp)
        ]
    theirs = by_sclite(tmp_path, segments, words, *["-D"] * optional)
    assert len(theirs) == len(texts)
    for (ref, hyp), wanted in zip(texts, theirs, strict=True):
        found = nist.align_texts(ref, " ".join(hyp), Options(optional_deletion=optional))
        assert columns(found) == wanted, (ref, hyp)


@pytest.mark.parametrize(
    ("ref", "hyp", "wanted"),
    [  # what sclite 2.10 says of these
        ("a", "b c", "I:/b S:a/c"),
        ("a b", "c", "D:a/ S:b/c"),
        ("a b c", "c d a", "S:a/c S:b/d S:c/a"),
        ("(a) b", "c", "C:a/ S:b/c"),
        ("(a) b", "b", "C:a/ C:b/b"),
        ("a (b) c", "a c", "C:a/a C:b/ C:c/c"),
        ("a (b)", "c a", "I:/c C:a/a C:b/"),
        ("(a) (b) c", "d c", "C:a/ S:b/d C:c/c"),
    ],
)
def test_alignments_that_sclite_gave(ref: str, hyp: str, wanted: str, tmp_path: Path) -> None:
    found = nist.align_texts(ref, hyp, Options(optional_deletion=True))
    assert " ".join(f"{k}:{r}/{h}" for k, r, h in columns(found)) == wanted
    if sclite.command("sclite") is not None:
        words = [
            TimedWord(file="f", channel="1", begin=0.1 * i, duration=0.05, word=w)
            for i, w in enumerate(hyp.split())
        ]
        theirs = by_sclite(
            tmp_path,
            [Segment(file="f", channel="1", speaker="s", begin=0, end=2, text=ref)],
            words,
            "-D",
        )
        assert theirs == [columns(found)]


Token = tuple[str, bool]
TOKENS = st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), max_size=7)


@given(TOKENS, TOKENS)
@settings(max_examples=200)
def test_optional_words_cost_least(ref: list[Token], hyp: list[Token]) -> None:
    """The alignment costs what the best of all does, by NIST's table of costs."""
    texts = [[f"({text}{text})" if may else text * 2 for text, may in side] for side in (ref, hyp)]
    edits = align(*(linear(side, optional_deletion=True) for side in texts))

    @cache
    def best(i: int, j: int) -> float:
        ways = [0.0] if i == j == 0 else []
        if i:
            ways.append(best(i - 1, j) + (2 if ref[i - 1][1] else 3))
        if j:
            ways.append(best(i, j - 1) + (2 if hyp[j - 1][1] else 3))
        if i and j:
            ways.append(best(i - 1, j - 1) + 4 * (ref[i - 1][0] != hyp[j - 1][0]))
        return min(ways)

    paid, i, j = 0, 0, 0
    for edit in edits:
        pair = edit.ref is not None and edit.hyp is not None
        may = [side[at][1] for side, at, word in ((ref, i, edit.ref), (hyp, j, edit.hyp)) if word]
        paid += 4 * (edit.kind == "S") if pair else 2 if may[0] else 3
        assert pair or (edit.kind == "C") == may[0]  # left out, and still no error
        i, j = i + (edit.ref is not None), j + (edit.hyp is not None)
    assert (i, j, paid) == (len(ref), len(hyp), best(len(ref), len(hyp)))
