"""A data directory in which commands are planted, and features that come with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from corpus_data import replace_line

from hadpsgd import kaldi_io
from hadpsgd.corpus.datadir import DataDir

DIM = 13


def command(place: Path, file: Path | str) -> str:
    """A command that leaves `ran` and prints a file."""
    return f"touch {place / 'ran'}; cat {file} |"


def ran(place: Path) -> bool:
    """Whether it did; forgotten afterwards."""
    found = (place / "ran").exists()
    (place / "ran").unlink(missing_ok=True)
    return found


def pipe_audio(place: Path) -> Path:
    """One recording becomes a command; returns the data directory."""
    data = place / "data" / "train"
    entry = command(place, place / "audio" / "call.wav")
    replace_line(data / "wav.scp", "call-A audio/call.wav", f"call-A {entry}")
    return data


def config(place: Path, *, corpus: dict[str, Any] | None = None, **sections: Any) -> str:
    """A config of the data directory; returns its path."""
    data = str(place / "data" / "train")
    sets = {"kind": "kaldi", "train": data, "dev": data, "tests": {"t": data}, "max_oov": 0.0}
    lexicon = {"dict_dir": str(place / "lexicon.txt")}
    content = {"name": "t", "corpus": sets | lexicon | (corpus or {}), **sections}
    (place / "config.yaml").write_text(json.dumps(content))
    return str(place / "config.yaml")


def data_of(place: Path) -> DataDir:
    """The utterances, whose features are as long as they are."""
    return DataDir.read(place / "data" / "train", audio=False)


def feature_files(place: Path) -> dict[str, Path]:
    """An archive of each kind that Kaldi's features come in."""
    rng = np.random.default_rng(0)
    speakers = ("ann", "bob")
    lengths = {each.id: round(100 * ((each.end or 0) - each.start)) for each in data_of(place)}
    frames = {name: rng.normal(size=(n, DIM)).astype(np.float32) for name, n in lengths.items()}
    stats = np.abs(rng.normal(size=(2, DIM + 1))) + 1
    vectors = {name: rng.normal(size=5).astype(np.float32) for name in speakers}
    transforms = {name: np.eye(DIM, DIM + 1, dtype=np.float32) for name in speakers}
    items: dict[str, dict[str, Any]] = {
        "feats": frames,
        "cmvn": dict.fromkeys(speakers, stats),
        "ivectors": vectors,
        "trans": transforms,
    }
    for name, arrays in items.items():
        kaldi_io.write_archive(place / f"{name}.ark", arrays.items(), place / f"{name}.scp")
    return {name: place / f"{name}.ark" for name in items}
