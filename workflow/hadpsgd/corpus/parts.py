"""A part of a data directory: some of its recordings, and what belongs to them."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from pathlib import Path

from hadpsgd.corpus.case import Case
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.corpus.stm import matches
from hadpsgd.corpus.tables import read_table, write_table
from hadpsgd.errors import UserError
from hadpsgd.files import plain_or_gzipped

EVERY = ("*",)
"""Patterns of all recordings."""


def part_of(data: DataDir, patterns: Sequence[str]) -> DataDir:
    """The utterances of the recordings whose file names match wildcards.

    A file name is what reco2file_and_channel has, otherwise the recording's id.

    Raises:
        UserError: a pattern matches nothing.
    """
    if tuple(patterns) == EVERY:
        return data
    files = {name: data.channels.get(name, (name, ""))[0] for name in data.recordings}
    for pattern in patterns:
        if not any(matches(file, [pattern]) for file in files.values()):
            raise UserError(
                f"no recording '{pattern}'",
                where=data.path,
                fix=f"Its recordings are such as {', '.join(sorted(set(files.values()))[:3])}",
            )
    kept = {name for name, file in files.items() if matches(file, patterns)}
    utterances = {u.id: u for u in data if u.recording in kept}
    if not utterances and data.utterances:
        raise UserError(f"no utterance in recordings {', '.join(patterns)}", where=data.path)
    speakers = {u.speaker for u in utterances.values()}
    return replace(
        data,
        utterances=utterances,
        recordings={name: place for name, place in data.recordings.items() if name in kept},
        gender={name: value for name, value in data.gender.items() if name in speakers},
        channels={name: value for name, value in data.channels.items() if name in kept},
    )


def copy_tables(data: DataDir, case: Case, folder: Path) -> None:
    """Copy what a (part of a) data directory has of its text tables, as they are written there.

    Only transcripts change, where words are folded; wav.scp and spk2utt are not among them.
    """
    keys: dict[str, Container[str]] = {
        "segments": data.utterances,
        "text": data.utterances,
        "utt2spk": data.utterances,
        "spk2gender": data.gender,
        "reco2file_and_channel": data.channels,
    }
    for name, kept in keys.items():
        if (path := plain_or_gzipped(data.path / name)).is_file():
            rows = ((key, value) for key, value in read_table(path).items() if key in kept)
            folded = ((k, case.text(v)) for k, v in rows) if name == "text" else rows
            write_table(folder / name, folded)
