"""`hadpsgd transcribe --reference`: which recordings are scored, and how texts may be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from hadpsgd.config.decoding import Scoring
from hadpsgd.errors import UserError
from hadpsgd.scoring import nist
from hadpsgd.scoring.filters import Filters
from hadpsgd.scoring.formats import TimedWord
from hadpsgd.scoring.transcribe import against
from hadpsgd.scoring.transcribe.transcript import Segment, Transcript


def heard(name: str, text: str) -> Transcript:
    """Of one channel, a word a second."""
    words = tuple(
        TimedWord(file=name, channel="1", begin=float(n), duration=0.5, word=word)
        for n, word in enumerate(text.split())
    )
    segment = Segment(channel="1", speaker=name, begin=0.0, end=9.0, words=words)
    return Transcript(name=name, seconds=9.0, channels=("1",), segments=(segment,))


def counts(reference: Path, *found: Transcript) -> tuple[int, int]:
    """Words of the reference, and errors."""
    scored = against.score(reference, found, [t.name for t in found], Filters.of(Scoring()))
    total = nist.total(scored.sentences)
    return total.words, total.sub + total.dele + total.ins


def test_recordings_that_the_reference_lacks_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their words are no errors, and nobody takes the rate of the others for that of all."""
    file = tmp_path / "ref.txt"
    file.write_text("first YES NO\nsecond_one yes\n")
    found = heard("first", "yes oh"), heard("second-one", "yes"), heard("Über", "no")
    assert counts(file, *found) == (2, 1)  # in upper case, too
    told = capsys.readouterr().err
    what = "2 of 3 recordings are not in it and not scored: second-one, Über"
    lacks = "1 of its 2 recordings were not given: second_one"
    assert told == f"warning: {file}: {what}\nwarning: {file}: {lacks}\n"
    file.write_text("first YES NO\n")
    assert counts(file, found[0]) == (2, 1) and capsys.readouterr().err == ""
    with pytest.raises(UserError, match="has none of the recordings"):
        counts(file, *found[1:])


def test_a_tabulator_may_stand_after_the_name(tmp_path: Path) -> None:
    """As spreadsheets write it."""
    (file := tmp_path / "ref.txt").write_text("first\tYES NO\r\nsecond\t\n")
    assert counts(file, heard("first", "yes no"), heard("second", "")) == (2, 0)


def test_channels_of_an_stm_in_lower_case(tmp_path: Path) -> None:
    """Its `a` is A, and that our 1."""
    for channel in ("1", "A", "a"):
        (file := tmp_path / "ref.stm").write_text(f"first {channel} s 0 9 YES NO\n")
        assert counts(file, heard("first", "yes oh")) == (2, 1)
