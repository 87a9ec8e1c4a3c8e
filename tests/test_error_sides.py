"""Pages of errors of sides without segments, which an stm cuts, and why a sentence has no audio."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
import pytest
import soundfile
from corpus_data import replace_line
from test_error_pages import SEGMENTS, found, shown
from test_error_pages import place as place
from test_two_runs import blocks, compared
from test_two_runs import place as scored

from hadpsgd.corpus.datadir import DataDir
from hadpsgd.reports.causes import UNTESTED

two_runs = scored


def as_sides(data: Path) -> None:
    """Each side one utterance, as long as the recording: no segments."""
    (data / "segments").unlink()
    for name, rows in {
        "utt2spk": ("call-A", "call-B"),
        "spk2utt": ("call-A", "call-B"),
        "text": ("hello bob bye", "hi ann"),
        "spk2gender": ("f", "m"),
    }.items():
        ids = ("call-A", "call-B")
        (data / name).write_text("".join(f"{i} {r}\n" for i, r in zip(ids, rows, strict=True)))


def test_segments_of_an_stm_are_cut_from_the_side(place: Path) -> None:
    as_sides(place)
    made = found(DataDir.read(place))
    assert made.cause(made.sentences[0]).kind == UNTESTED
    rows = {row["name"]: row for row in made.rows()}
    assert len(rows) == len(made.clips) == 4
    for sentence, segment in zip(made.sentences, SEGMENTS, strict=True):
        clip = made.clips[rows[sentence.name]["clip"]]
        samples, rate = soundfile.read(io.BytesIO(base64.b64decode(clip)))
        assert len(samples) / rate == pytest.approx(segment.end - segment.begin, abs=0.01)
        assert rows[sentence.name]["begin"] == segment.begin
        peak = np.argmax(np.abs(np.fft.rfft(samples))) * rate / len(samples)
        assert peak == pytest.approx(440 if segment.channel == "A" else 880, abs=2)
    assert [each.name for each in made.groups["snr"]] == ["below 0"]
    assert "have no audio here" not in shown(made)


def test_two_runs_on_sides(two_runs: Path) -> None:
    as_sides(two_runs / "data/train")
    assert compared(two_runs, "--data", str(two_runs / "data")) == 0
    rows, clips = blocks(two_runs, "rows"), blocks(two_runs, "clips")
    assert len(clips) == 2 and all(row["clip"] is not None for row in rows)
    assert "have no audio here" not in (two_runs / "page.html").read_text()


def test_the_reason_for_no_audio_is_the_true_one(place: Path) -> None:
    as_sides(place)
    assert "4 of those listed have no audio here: the page has 15 minutes" in shown(
        found(DataDir.read(place), minutes=0)
    )
    replace_line(place / "wav.scp", "call-B audio/call.wav", "call-B audio/gone.wav")
    text = shown(found(DataDir.read(place)))
    assert "2 of those listed have no audio here: it cannot be read" in text
    assert "2 sentences could not be heard" in text and "gone.wav" in text
    for name in ("wav.scp", "utt2spk", "spk2utt", "text", "spk2gender", "reco2file_and_channel"):
        lines = (place / name).read_text().splitlines()
        (place / name).write_text(lines[0] + "\n")
    text = shown(found(DataDir.read(place)))
    assert "2 of those listed have no audio here: the data directory has no such" in text


def test_two_runs_without_data(two_runs: Path) -> None:
    assert compared(two_runs) == 0
    text = (two_runs / "page.html").read_text()
    assert "2 of those listed have no audio here: give --data" in text
