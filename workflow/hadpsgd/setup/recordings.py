"""Recordings of a table: looked at, named, and brought to one rate where they differ."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from hadpsgd.corpus import audio
from hadpsgd.corpus.dictdir import RESERVED
from hadpsgd.corpus.resample import resample, to_int16
from hadpsgd.corpus.tables import Report
from hadpsgd.corpus.validate import SHORTEST
from hadpsgd.errors import UserError
from hadpsgd.files import file_name
from hadpsgd.progress import tracked
from hadpsgd.setup.plain import Plain, plain
from hadpsgd.setup.table import Row

RATES = (8000, 16000)
"""Sample rates (Hz) that models have here, of telephones and of microphones."""
ONE_SPEAKER = "speaker"
"""Its name where the table names none."""
_CORRECT_PATH = "Correct the table: relative paths begin at its folder (docs/own-recordings.md)"
_NO_ID = re.compile(r"[^\w.+-]+")
_NO_SPEAKER = re.compile(r"[^\w.]+")
"""Nor `-`, which ends the speaker in ids of utterances, nor `+`, which sorts before it: the
utterances of Ann and Ann-Marie would not sort as they do themselves."""


@dataclass(frozen=True, kw_only=True)
class Recording:
    """A row that can be used."""

    id: str
    """Of the utterance, beginning with the speaker's."""
    speaker: str
    file: Path
    said: Plain
    set: str
    """Empty where the table does not say."""
    seconds: float
    rate: int


def look_at(table: Path, rows: Sequence[Row], report: Report, threads: int) -> list[Recording]:
    """Read all headers and take the texts' words; names are made of speaker and file.

    Faults reported, by line of the table: a file that is missing, no audio, truncated, too short,
    of several channels or of a rate below 8000 Hz; a text without words or with a reserved one; two
    recordings, or two speakers, that would have one name.
    """
    with ThreadPoolExecutor(threads) as pool:
        headers = list(tracked(pool.map(_header, rows), rows, what="looked at", unit="recordings"))
    speakers, ids = _Names("speaker"), _Names("utterance")
    found = []
    for row, header in zip(rows, headers, strict=True):
        where = f"{table}:{row.line}"
        if isinstance(header, UserError):
            report(UserError(str(header), where=where))
            continue
        said = plain(row.text)
        if row.text and not said.words:
            report(UserError(f"no word in '{row.text}'", where=where, fix="Write what is said"))
        for word in sorted(RESERVED.intersection(said.words)):
            report(UserError(f"word '{word}' is reserved", where=where, fix="Remove it"))
        speaker = _NO_SPEAKER.sub("_", row.speaker or ONE_SPEAKER)
        name = f"{speaker}-{_NO_ID.sub('_', row.file.stem)}"
        try:
            speakers.take(speaker, owner=row.speaker, where=where)
            ids.take(name, owner=str(row.file), where=where)
        except UserError as error:
            report(error)
        found.append(
            Recording(
                id=name,
                speaker=speaker,
                file=row.file.absolute(),
                said=said,
                set=row.set,
                seconds=header.seconds,
                rate=header.rate,
            )
        )
    return found


class _Names:
    """What has which name; two things of one name are a fault."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._owners: dict[str, str] = {}

    def take(self, name: str, *, owner: str, where: str) -> None:
        """Raises UserError where something else has the name."""
        known = self._owners.setdefault(name, owner)
        if known != owner:
            raise UserError(
                f"'{known}' and '{owner}' would both be the {self._what} {name}",
                where=where,
                fix="Rename one of them"
                + (", or add a column speaker" if self._what == "utterance" else ""),
            )


def _header(row: Row) -> audio.AudioInfo | UserError:
    try:
        header = audio.info(str(row.file))
    except UserError as error:
        return UserError(str(error).replace(audio.CORRECT_PATH, _CORRECT_PATH))
    except OSError as error:
        return UserError(f"cannot be read ({error.strerror})", where=row.file)
    if header.channels > 1:
        return UserError(
            f"{header.channels} channels",
            where=row.file,
            fix=f"Make it one: ffmpeg -i {quote(str(row.file))} -ac 1 OUT.wav",
        )
    if header.rate < RATES[0]:
        return UserError(f"{header.rate} Hz; at least {RATES[0]} are needed", where=row.file)
    if header.seconds < SHORTEST:
        return UserError(f"only {header.seconds * 1000:.0f} ms of audio", where=row.file)
    return header


def rate_for(recordings: Iterable[Recording]) -> int:
    """The rate of the model: 16000 Hz if all recordings have as much, else 8000."""
    lowest = min(recording.rate for recording in recordings)
    return max(rate for rate in RATES if rate <= lowest)


def converted(recording: Recording, folder: Path, rate: int) -> Path:
    """The recording at this rate: the file itself, or a copy written into `folder`.

    Raises:
        UserError: the audio is damaged.
    """
    if recording.rate == rate:
        return recording.file
    with audio.open_audio(str(recording.file)) as stream:
        samples = audio.read(stream, channel=0)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{file_name(recording.id)}.wav"
    audio.write_wav(path, to_int16(resample(samples, rate=recording.rate, new_rate=rate)), rate)
    return path
