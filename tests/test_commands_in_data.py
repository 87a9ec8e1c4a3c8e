"""Data may hold commands: none runs that was not allowed, wherever a path can be a command."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus_data import make_data, replace_line

from hadpsgd.cli import USER_ERROR, main


def command(folder: Path, audio: Path) -> str:
    """A command that leaves a file `ran` and prints a recording."""
    return f"touch {folder / 'ran'}; cat {audio} |"


@pytest.fixture
def piped(tmp_path: Path) -> Path:
    """A healthy data directory, one recording of which is a command."""
    data = make_data(tmp_path)
    entry = command(tmp_path, tmp_path / "audio" / "call.wav")
    replace_line(data / "wav.scp", "call-A audio/call.wav", f"call-A {entry}")
    return data


def test_validate_runs_nothing(piped: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["validate", str(piped), "--threads", "4"]) == USER_ERROR
    assert not (tmp_path / "ran").exists()
    said = capsys.readouterr().err
    assert "call-A" in said and "a command in wav.scp is not run" in said


def test_validate_with_the_flag(piped: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """The command runs, and the other checks are as strict as before."""
    assert main(["validate", str(piped), "--allow-pipes"]) == 0
    assert (tmp_path / "ran").exists()
    replace_line(piped / "text", "ann-2 bye", "ann-2 zebra")
    lexicon = str(tmp_path / "lexicon.txt")
    assert main(["validate", str(piped), "--allow-pipes", "--lexicon", lexicon]) == USER_ERROR
    assert "'zebra' is not in the lexicon" in capsys.readouterr().err
