"""How much speech a data directory has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from hadpsgd.corpus import audio
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.corpus.parts import EVERY, part_of
from hadpsgd.corpus.tables import Report, raise_fault, read_table
from hadpsgd.errors import UserError
from hadpsgd.files import plain_or_gzipped


def speech_seconds(
    data: Path,
    report: Report = raise_fault,
    *,
    headers: bool,
    recordings: Sequence[str] = EVERY,
) -> float | None:
    """Seconds of all utterances: by utt2dur, which Kaldi makes, else by segments.

    Recordings that are utterances, or whose last segment has no end, are as long as reco2dur or
    their files say. None where that is not known.

    Args:
        data: the data directory.
        report: takes each fault of its tables; the default raises the first one.
        headers: whether to look into audio files; commands of wav.scp are not run.
        recordings: wildcards of those that count (see `part_of`).

    Raises:
        UserError: a fault (see `report`), no data directory, no such recordings or audio file.
    """
    durations = _durations(data / "utt2dur")
    if durations and tuple(recordings) == EVERY:
        return sum(durations.values())
    directory = part_of(DataDir.read(data, report), recordings)
    lengths = _durations(data / "reco2dur")
    total = 0.0
    for utterance in directory:
        if utterance.id in durations:
            total += durations[utterance.id]
            continue
        end, recording = utterance.end, utterance.recording
        if end is None and recording not in lengths:
            place = directory.recordings[recording]
            if not headers or audio.is_pipe(place):
                return None
            lengths[recording] = audio.info(place).seconds
        total += max((lengths[recording] if end is None else end) - utterance.start, 0.0)
    return total


def _durations(file: Path) -> dict[str, float]:
    """A table of seconds; empty where there is none."""
    found = plain_or_gzipped(file)
    if not found.is_file():
        return {}
    return {key: _number(text, f"{found}: {key}") for key, text in read_table(found).items()}


def _number(text: str, where: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds < math.inf:
        raise UserError(f"{text!r} is no number of seconds", where=where, fix="Make the file anew")
    return seconds
