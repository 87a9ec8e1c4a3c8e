"""Recordings with a table, `hadpsgd init` on them, and the corpus that comes of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile
from corpus_data import write_lines

from hadpsgd.cli import main
from hadpsgd.config import Config, load
from hadpsgd.config.corpus import Kaldi
from hadpsgd.corpus.datadir import DataDir

SPEAKERS = ("Ann", "Bob", "Cleo", "Dan")
TEXTS = ("Turn it on!", "Turn it off,  please.", "It\u2019s on: ON?")


def tone(rate: int, hertz: float = 440.0, seconds: float = 1.0) -> np.ndarray:
    time = np.arange(int(seconds * rate)) / rate
    return np.rint(8000 * np.sin(2 * np.pi * hertz * time)).astype(np.int16)


def table(folder: Path, *, rate: int = 16000, separator: str = ",") -> Path:
    """Twelve recordings of four speakers, and their table; paths have spaces."""
    (folder / "my takes").mkdir(parents=True)
    rows = [separator.join(("file", "text", "speaker"))]
    for number, speaker in enumerate(SPEAKERS * 3):
        name = f"my takes/{speaker} take {number:02d}.wav"
        soundfile.write(folder / name, tone(rate), rate)
        rows.append(separator.join((name, f'"{TEXTS[number % 3]}"', speaker)))
    path = folder / "takes.csv"
    write_lines(path, rows)
    return path


def init(folder: Path, *arguments: str) -> int:
    """Run it, everything written below `folder`."""
    return main(
        ["init", *arguments, "--out", str(folder / "c.yaml"), "--data", str(folder / "data")]
    )


def corpus(folder: Path) -> tuple[Config, Kaldi, Path]:
    """The config that was written, and the corpus that its stage makes of it."""
    config = load(folder / "c.yaml")
    out = folder / "corpus"
    assert main(["corpus", "--config", str(folder / "c.yaml"), "--out", str(out)]) == 0
    assert isinstance(config.corpus, Kaldi)
    return config, config.corpus, out


def said(out: Path, name: str) -> dict[str, str]:
    return {u.id: u.text for u in DataDir.read(out / "data" / name)}


def spoil(path: Path, line: int, new: str) -> None:
    lines = path.read_text().splitlines()
    lines[line - 1] = new
    write_lines(path, lines)
