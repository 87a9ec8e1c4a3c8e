"""What a config puts on the disk, by hours of speech."""

from __future__ import annotations

import json
from pathlib import Path

from hadpsgd.config import Config
from hadpsgd.config.corpus import Builtin, Kaldi
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.corpus.tables import read_table
from hadpsgd.errors import UserError
from hadpsgd.files import plain_or_gzipped

MADE = "init.json"
"""What `hadpsgd init` leaves in a folder that it made: source, hours, SHA-256 of the config."""
_FRAMES_AN_HOUR = 360_000
_FLOAT = 4
_REST = 1.5e9
"""Checkpoints, graph, lattices, pages; what hours hardly change."""
_DIMS = {"fmllr": 40, "ivector": 100}


def bytes_needed(config: Config | None, hours: float) -> float:
    """Bytes for features and examples, which are most of it.

    Without a config those of the defaults. All speech is counted as if it were trained on.
    """
    frames = hours * _FRAMES_AN_HOUR
    if config is None:
        return _REST + frames * _FLOAT * (40 + 13 + 120)
    logmel, streams, egs = config.features.logmel, config.features.input, config.egs
    dims = {**_DIMS, "logmel": logmel.bins * (logmel.delta_order + 1)}
    speeds = len(config.corpus.speeds)
    stored = logmel.bins + config.features.mfcc.cepstra + dims["fmllr"] * ("fmllr" in streams)
    audio = 2 * config.features.sample_rate * 3600 * hours * (speeds - 1)
    repeats = speeds * len(egs.tempos) * egs.frames / (egs.shift or egs.frames)
    width = {"float32": 4, "float16": 2}[egs.dtype]
    examples = repeats * width * sum(dims[stream] for stream in streams)
    return _REST + audio + frames * (stored * _FLOAT * speeds + examples)


def hours_known(config: Config) -> float | None:
    """Hours of a config's speech, where that is known without reading audio."""
    match config.corpus:
        case Builtin() as corpus:
            return (corpus.train_minutes + corpus.dev_minutes + 2 * corpus.test_minutes) / 60
        case Kaldi() as corpus:
            made = Path(corpus.train.data).parent / MADE
            if made.is_file():
                return float(json.loads(made.read_text("utf-8"))["hours"])
            try:
                parts = [_hours(Path(part.data)) for part in corpus.sets.values()]
            except (UserError, ValueError):
                return None  # `hadpsgd validate` says what is wrong
            return None if None in parts else sum(part for part in parts if part)
    return None


def _hours(data: Path) -> float | None:
    """By segments, or by utt2dur, which Kaldi makes."""
    durations = plain_or_gzipped(data / "utt2dur")
    if durations.is_file():
        return sum(map(float, read_table(durations).values())) / 3600
    utterances = DataDir.read(data, lambda _: None)
    spans = [u.end - u.start for u in utterances if u.end is not None]
    return sum(spans) / 3600 if len(spans) == len(utterances) else None
