"""Kaldi data directories: an index in memory, audio read utterance by utterance.

Files: wav.scp, segments, text, utt2spk, spk2utt, spk2gender, reco2file_and_channel (Kaldi,
"Data preparation"); and mixtures, of which noisy copies are made (our own). Relative paths in
wav.scp are looked up from the recipe's folder (the folder two above the data directory, as in
`s5/data/train`), then from the current folder, then from the data directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
import soundfile

from hadpsgd.corpus import audio
from hadpsgd.corpus.datadir_tables import TablesReader
from hadpsgd.corpus.noise.mixture import TABLE, Mixture
from hadpsgd.corpus.tables import Report, raise_fault, read_table, write_table
from hadpsgd.errors import UserError
from hadpsgd.files import is_file, plain_or_gzipped

# Kaldi's extract-segments: a segment may end this many seconds after its recording
MAX_OVERSHOOT = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Utterance:
    """One utterance; `recording` equals `id` where there is no segments file."""

    id: str
    speaker: str
    recording: str
    text: str = ""
    """Words, separated by single spaces; empty where the directory has no text."""
    start: float = 0.0
    """Seconds from the beginning of the recording."""
    end: float | None = None
    """Seconds; None is the end of the recording."""
    channel: int = 0
    """Channel of a recording with several (0 is Kaldi's A or 1)."""

    @property
    def is_segment(self) -> bool:
        """Whether it is a part of its recording."""
        return self.recording != self.id or self.start > 0 or self.end is not None

    @property
    def words(self) -> list[str]:
        """The transcript as a list."""
        return self.text.split()


@dataclass
class DataDir:
    """A Kaldi data directory. Iterates over its utterances in sorted order."""

    path: Path
    utterances: dict[str, Utterance]
    """Utterance id to utterance, sorted."""
    recordings: dict[str, str] = field(default_factory=dict)
    """Recording id to its place: an absolute or found path, or a command ending in `|`."""
    gender: dict[str, str] = field(default_factory=dict)
    """Speaker to `m` or `f`; may be empty."""
    channels: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Recording id to (file, channel name) of reco2file_and_channel; may be empty."""
    mixtures: dict[str, Mixture] = field(default_factory=dict)
    """Noisy utterance to what its audio is mixed with when it is read; may be empty."""

    def __len__(self) -> int:
        return len(self.utterances)

    def __iter__(self) -> Iterator[Utterance]:
        return iter(self.utterances.values())

    @property
    def speakers(self) -> dict[str, list[str]]:
        """Speaker to its utterance ids, both sorted (spk2utt)."""
        table: dict[str, list[str]] = {}
        for utterance in self:
            table.setdefault(utterance.speaker, []).append(utterance.id)
        return dict(sorted(table.items()))

    def file_and_channel(self, utterance: Utterance) -> tuple[str, str]:
        """File and channel as CTM and STM name them; (recording, '1') where nothing says."""
        return self.channels.get(utterance.recording, (utterance.recording, "1"))

    @classmethod
    def read(
        cls,
        path: Path | str,
        report: Report = raise_fault,
        *,
        audio: bool = True,
        text: bool = True,
    ) -> DataDir:
        """Read and check the text files of a directory; audio is not touched.

        Args:
            path: the data directory.
            report: takes each fault; the default raises the first one.
            audio: whether wav.scp must be there (Kaldi keeps directories with features alone).
            text: whether text must be there.

        Raises:
            UserError: a fault (see `report`), or a file that must be there is missing.
        """
        path = Path(path)
        for name in ["utt2spk", *(["wav.scp"] if audio else []), *(["text"] if text else [])]:
            if not plain_or_gzipped(path / name).is_file():
                what = f"no file {name}" if path.is_dir() else "no such data directory"
                raise UserError(what, where=path, fix="Give a Kaldi data directory")
        tables = TablesReader(path, report).read()
        known: Iterable[str] = tables.recordings if tables.segments is None else tables.segments
        if not audio and tables.segments is None:
            known = tables.recordings or tables.speakers
        utterances = {}
        for name in sorted(set(known) & set(tables.speakers)):
            segment = tables.segment(name)
            utterances[name] = Utterance(
                id=name,
                speaker=tables.speakers[name],
                recording=segment.recording,
                text=" ".join(tables.text.get(name, "").split()),
                start=segment.start,
                end=segment.end,
                channel=tables.channel(name),
            )
        found = locate(path, tables.recordings)
        mixtures = {}
        if audio and (path / TABLE).is_file():
            base = path.resolve().parent.parent
            for name, line in read_table(path / TABLE, report).items():
                where = f"{path / TABLE}: utterance {name}"
                mixtures[name] = Mixture.parse(line, where).below(base)
        return cls(path, utterances, found, tables.gender, tables.channels, mixtures)

    def write(self, path: Path | str) -> None:
        """Write wav.scp, segments, text, utt2spk, spk2utt, spk2gender, reco2file_and_channel,
        mixtures.

        Files that would be empty are not written. Places of `recordings` and files of
        `mixtures` are written as they are: make them absolute, or relative to the folder two
        above `path`.
        """
        path = Path(path)
        path.mkdir(parents=True, exist_ok=True)
        tables: dict[str, Iterable[tuple[str, str]]] = {
            "wav.scp": self.recordings.items(),
            "utt2spk": ((u.id, u.speaker) for u in self),
            "spk2utt": ((s, " ".join(ids)) for s, ids in self.speakers.items()),
            "spk2gender": self.gender.items(),
            "text": ((u.id, u.text) for u in self if u.text),
            "segments": ((u.id, self._segment(u)) for u in self if u.is_segment),
            "reco2file_and_channel": ((r, " ".join(fc)) for r, fc in self.channels.items()),
            TABLE: ((name, mixture.line()) for name, mixture in self.mixtures.items()),
        }
        for name, rows in tables.items():
            rows = list(rows)
            if rows:
                write_table(path / name, rows)

    def _segment(self, utterance: Utterance) -> str:
        end = -1 if utterance.end is None else utterance.end
        line = f"{utterance.recording} {utterance.start:.10g} {end:.10g}"
        said_elsewhere = utterance.recording in self.channels or not utterance.channel
        return line if said_elsewhere else f"{line} {utterance.channel}"


class AudioReader:
    """Reads utterances' samples; holds one recording open at a time.

    Give it utterances of one recording after another: a command of wav.scp then runs once.
    """

    def __init__(self, data: DataDir, sample_rate: int, *, allow_pipes: bool = False) -> None:
        self.data = data
        self.sample_rate = sample_rate
        self.allow_pipes = allow_pipes
        self._recording: str | None = None
        self._stream: soundfile.SoundFile | None = None

    def read(self, utterance: Utterance) -> np.ndarray:
        """Samples of an utterance: float32 [samples], in the range of int16; a noisy copy is mixed.

        Borders are those of Kaldi's extract-segments.

        Raises:
            UserError: audio missing, truncated, at another rate, without the channel, or a
                segment that is empty or ends over half a second after its recording.
        """
        stream = self._open(utterance.recording)
        where = f"{self.data.path}: utterance {utterance.id}"
        if stream.samplerate != self.sample_rate:
            raise UserError(
                f"sample rate {stream.samplerate} Hz instead of {self.sample_rate}",
                where=f"{where}: {stream.name}",
                fix="Resample it (sox -r) or set features.sample_rate",
            )
        start, end = sample_range(
            utterance, frames=stream.frames, rate=stream.samplerate, where=where
        )
        channel = channel_of(self.data, utterance, stream.channels, where)
        samples = audio.read(stream, channel=channel, start=start, end=end)
        mixture = self.data.mixtures.get(utterance.id)
        return samples if mixture is None else mixture.applied(samples, self.sample_rate)

    def close(self) -> None:
        """Close the open recording."""
        if self._stream is not None:
            self._stream.close()
        self._recording = self._stream = None

    def __enter__(self) -> AudioReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, recording: str) -> soundfile.SoundFile:
        if self._stream is None or recording != self._recording:
            self.close()
            location = self.data.recordings[recording]
            self._stream = audio.open_audio(location, allow_pipes=self.allow_pipes)
            self._recording = recording
        return self._stream


def sample_range(utterance: Utterance, *, frames: int, rate: int, where: object) -> tuple[int, int]:
    """First sample and the one after the last, as Kaldi's extract-segments cuts them.

    Raises:
        UserError: the segment is empty or reaches beyond the recording.
    """
    start = int(utterance.start * rate)
    end = frames if utterance.end is None else int(utterance.end * rate)
    if not frames:
        what = f"recording {utterance.recording} has no samples"
        raise UserError(what, where=where, fix="Remove it, or copy it again")
    if start >= frames or end >= frames + int(MAX_OVERSHOOT * rate) > frames:
        raise UserError(
            f"segment {start / rate:.2f}-{end / rate:.2f} s is beyond the end of recording "
            f"{utterance.recording} ({frames / rate:.2f} s)",
            where=where,
            fix="Correct segments",
        )
    end = min(end, frames)
    if end <= start:
        raise UserError("no samples in this utterance", where=where, fix="Correct segments")
    return start, end


def channel_of(data: DataDir, utterance: Utterance, channels: int, where: object) -> int:
    """Channel of the recording that holds an utterance; a recording of one has no choice.

    Raises:
        UserError: the recording has several channels and nothing says which, or too few.
    """
    if channels == 1:
        return 0
    if utterance.recording not in data.channels and not utterance.channel:
        raise UserError(
            f"recording {utterance.recording} has {channels} channels and nothing says which",
            where=where,
            fix="Write reco2file_and_channel",
        )
    if utterance.channel >= channels:
        raise UserError(
            f"channel {utterance.channel + 1} of a recording with {channels}",
            where=where,
            fix="Correct reco2file_and_channel",
        )
    return utterance.channel


def locate(folder: Path, recordings: dict[str, str]) -> dict[str, str]:
    """Make relative paths of wav.scp usable from the current folder."""

    def relative(place: str) -> bool:
        return not audio.is_pipe(place) and not place.startswith("/")

    bases = [folder.resolve().parent.parent, Path(), folder]
    probes = list(islice(filter(relative, recordings.values()), 20))
    base = next((b for b in bases if any(is_file(b / p) for p in probes)), Path())
    return {
        name: str(base / place) if relative(place) else place for name, place in recordings.items()
    }
