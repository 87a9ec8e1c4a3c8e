"""A small healthy data directory for tests to spoil."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile

RATE = 8000


def tone(seconds: float, hertz: float = 440.0, level: float = 8000.0) -> np.ndarray:
    """int16 samples of a sine."""
    time = np.arange(int(seconds * RATE)) / RATE
    return np.rint(level * np.sin(2 * np.pi * hertz * time)).astype(np.int16)


def write_lines(path: Path, lines: list[str]) -> None:
    """Write a text file."""
    path.write_text("".join(f"{line}\n" for line in lines))


def make_data(folder: Path) -> Path:
    """Two speakers, four utterances in one two-channel recording; returns the data directory."""
    data = folder / "data" / "train"
    data.mkdir(parents=True)
    (folder / "audio").mkdir()
    both = np.stack([tone(10, 440), tone(10, 880)], axis=1)
    soundfile.write(folder / "audio" / "call.wav", both, RATE, subtype="PCM_16")
    write_lines(data / "wav.scp", ["call-A audio/call.wav", "call-B audio/call.wav"])
    write_lines(data / "reco2file_and_channel", ["call-A call A", "call-B call B"])
    write_lines(
        data / "segments",
        [
            "ann-1 call-A 0.5 2.25",
            "ann-2 call-A 3 4.5",
            "bob-1 call-B 2.5 3.5",
            "bob-2 call-B 5 9.99",
        ],
    )
    write_lines(data / "text", ["ann-1 hello bob", "ann-2 bye", "bob-1 hi ann", "bob-2 bye bye"])
    write_lines(data / "utt2spk", ["ann-1 ann", "ann-2 ann", "bob-1 bob", "bob-2 bob"])
    write_lines(data / "spk2utt", ["ann ann-1 ann-2", "bob bob-1 bob-2"])
    write_lines(data / "spk2gender", ["ann f", "bob m"])
    write_lines(folder / "lexicon.txt", [f"{w} SPN" for w in ["ann", "bob", "bye", "hello", "hi"]])
    return data


def replace_line(path: Path, old: str, new: str | None) -> None:
    """Replace a line of a text file, or remove it."""
    lines = path.read_text().splitlines()
    index = lines.index(old)
    lines[index : index + 1] = [] if new is None else new.split("\n")
    write_lines(path, lines)
