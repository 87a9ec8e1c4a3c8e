"""`hadpsgd validate`: what a user of the command line is told of a data directory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from corpus_data import RATE, make_data, replace_line, write_lines

from hadpsgd.cli import main


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_data(tmp_path)


def test_command(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lexicon = str(data.parents[1] / "lexicon.txt")
    assert main(["validate", str(data), "--lexicon", lexicon]) == 0
    assert "0 (0.00 %)" in capsys.readouterr().out
    wav = data.parents[1] / "audio/call.wav"
    wav.write_bytes(wav.read_bytes()[:-100])
    replace_line(data / "text", "ann-2 bye", "ann-2")
    assert main(["validate", str(data), "--lexicon", lexicon]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 4  # three faults and the count
    assert "3 faults" in said.splitlines()[-1]
    assert "Traceback" not in said


def test_what_no_stm_can_say(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without an stm of its own, transcripts are scored against as one."""
    for name in ("wav.scp", "segments", "reco2file_and_channel"):
        (data / name).write_text((data / name).read_text().replace("call-A", ";;-A"))
    replace_line(data / "reco2file_and_channel", ";;-A call A", ";;-A ;;call A")
    lines = ["ann-1 @ bob @", "ann-2 / bye", "bob-1 {hi ann}", "bob-2 bye@bye @"]
    write_lines(data / "text", lines)
    assert main(["validate", str(data)]) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 5
    assert f"{data}: recording ';;call' cannot be scored: " in told[0]
    marks = [("@", "ann-1"), ("ann}", "bob-1"), ("{hi", "bob-1")]
    for line, (word, utterance) in zip(told[1:4], marks, strict=True):
        assert line.startswith(f"{data}/text: utterance {utterance}: '{word}' would not be scored")
    write_lines(data / "stm", ["call A ann 0 2 bye", "call B bob 5 9 hi"])
    write_lines(data / "reco2file_and_channel", [";;-A call A", "call-B call B"])
    assert main(["validate", str(data)]) == 0


def test_command_on_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(tmp_path / "nowhere")]) == 2
    assert "no such data directory" in capsys.readouterr().err


def test_the_command_names_its_own_option_for_another_rate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = make_data(tmp_path)
    assert main(["validate", str(data), "--sample-rate", "16000"]) == 2
    told = capsys.readouterr().err
    assert f"{RATE} Hz instead of 16000. Resample it or give --sample-rate {RATE}\n" in told
    assert main(["validate", str(data), "--sample-rate", str(RATE)]) == 0


def test_files_of_another_rate_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A corpus at 16 kHz has a hundred thousand of them."""
    data = make_data(tmp_path)
    words = [f"u{number} hello" for number in range(4)]
    for number, rate in enumerate([RATE, 16000, 16000, 16000]):
        soundfile.write(tmp_path / f"audio/{number}.wav", np.zeros(2 * rate), rate)
    write_lines(data / "wav.scp", [f"u{number} audio/{number}.wav" for number in range(4)])
    write_lines(data / "text", words)
    write_lines(data / "utt2spk", [f"u{number} u{number}" for number in range(4)])
    for name in ("segments", "reco2file_and_channel", "spk2utt", "spk2gender"):
        (data / name).unlink()
    assert main(["validate", str(data)]) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 2
    assert "u1: " in told[0] and "audio/1.wav: sample rate 16000 Hz instead of 8000" in told[0]
    assert ", as have 2 more files. Resample it" in told[0]
