"""The text files of a Kaldi data directory, read and compared with one another."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from hadpsgd.corpus.tables import Report, read_table
from hadpsgd.errors import UserError
from hadpsgd.files import plain_or_gzipped


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A line of segments."""

    recording: str
    start: float
    end: float | None
    """Seconds; None (-1 in the file) is the end of the recording."""
    channel: int | None
    """The optional fifth column of Kaldi's extract-segments."""


@dataclass(frozen=True)
class Tables:
    """What the files say; a file that is not there gives an empty table."""

    speakers: dict[str, str]
    recordings: dict[str, str]
    text: dict[str, str]
    segments: dict[str, Segment] | None
    """None where there is no segments file: utterances are recordings then."""
    channels: dict[str, tuple[str, str]]
    gender: dict[str, str]

    def segment(self, utterance: str) -> Segment:
        """Where an utterance lies."""
        if self.segments is not None:
            return self.segments[utterance]
        return Segment(recording=utterance, start=0.0, end=None, channel=None)

    def channel(self, utterance: str) -> int:
        """Channel of an utterance: segments go before reco2file_and_channel."""
        segment = self.segment(utterance)
        if segment.channel is not None:
            return segment.channel
        return channel_number(self.channels.get(segment.recording, ("", "1"))[1])


class TablesReader:
    """Reads the files of one directory; faults go to `report`."""

    def __init__(self, path: Path, report: Report) -> None:
        self.path = path
        self.report = report

    def read(self) -> Tables:
        """Read all files that are there."""
        speakers = self._table("utt2spk", "utterance without speaker")
        recordings = self._table("wav.scp", "recording without audio")
        tables = Tables(
            speakers,
            recordings,
            self._table("text", "empty transcript of utterance"),
            self._segments(recordings),
            self._channels(recordings),
            self._gender(set(speakers.values())),
        )
        self._speaker_order(speakers)
        self._spk2utt(speakers)
        self._utterances(tables)
        return tables

    def _utterances(self, tables: Tables) -> None:
        """Every file must list the same utterances."""
        have: Iterable[str] = tables.recordings
        source = "wav.scp"
        if tables.segments is not None:
            have, source = tables.segments, "segments"
        if have or self._path(source).is_file():
            self._same(have, source, tables.speakers, "utt2spk", "utterance without speaker")
        if self._path("text").is_file():
            self._same(tables.speakers, "utt2spk", tables.text, "text", "no transcript of")

    def _table(self, name: str, empty: str) -> dict[str, str]:
        path = self._path(name)
        return read_table(path, self.report, empty=empty) if path.is_file() else {}

    def _path(self, name: str) -> Path:
        return plain_or_gzipped(self.path / name)

    def _fault(self, name: str, what: str, fix: str = "") -> None:
        self.report(UserError(what, where=self.path / name, fix=fix))

    def _same(
        self, have: Iterable[str], first: str, other: Iterable[str], second: str, missing: str
    ) -> None:
        """Two files must list the same ids."""
        have, other = set(have), set(other)
        for name in sorted(have - other):
            self._fault(second, f"{missing} '{name}' (it is in {first})", "Add or remove it")
        for name in sorted(other - have):
            self._fault(second, f"unknown utterance '{name}' (not in {first})", "Remove it")

    def _segments(self, recordings: dict[str, str]) -> dict[str, Segment] | None:
        if not self._path("segments").is_file():
            return None
        segments: dict[str, Segment] = {}
        for name, value in self._table("segments", "segment without recording").items():
            try:
                recording, start, end, *channel = value.split()
                begin, stop = float(start), float(end)
                whole = 0 <= begin < stop < math.inf or (0 <= begin < math.inf and stop == -1)
                if len(channel) > 1 or not whole:  # nor nan
                    raise ValueError
                number = int(channel[0]) if channel else None
            except ValueError:
                self._fault(
                    "segments",
                    f"utterance '{name}': bad segment '{value}'",
                    "Write: utterance recording start end, with 0 <= start < end",
                )
                continue
            if recording not in recordings:
                self._fault(
                    "segments",
                    f"utterance '{name}': unknown recording '{recording}'",
                    "Add it to wav.scp",
                )
                continue
            segments[name] = Segment(
                recording=recording, start=begin, end=None if stop == -1 else stop, channel=number
            )
        return segments

    def _channels(self, recordings: dict[str, str]) -> dict[str, tuple[str, str]]:
        name = "reco2file_and_channel"
        channels = {}
        for recording, value in self._table(name, "recording without file").items():
            parts = value.split()
            if len(parts) != 2 or channel_number(parts[1]) < 0:
                self._fault(
                    name, f"bad line '{recording} {value}'", "Write: recording file channel (A/B)"
                )
            elif recording not in recordings:
                self._fault(name, f"unknown recording '{recording}'", "Add it to wav.scp")
            else:
                channels[recording] = (parts[0], parts[1])
        if channels:
            for recording in sorted(set(recordings) - set(channels)):
                self._fault(name, f"recording '{recording}' is missing", "Add it")
        return channels

    def _gender(self, speakers: set[str]) -> dict[str, str]:
        gender = self._table("spk2gender", "speaker without gender")
        for speaker, value in gender.items():
            if value not in ("m", "f"):
                self._fault("spk2gender", f"speaker '{speaker}': '{value}'", "Write m or f")
            if speaker not in speakers:
                self._fault("spk2gender", f"unknown speaker '{speaker}'", "Remove it")
        if gender:
            for speaker in sorted(speakers - set(gender)):
                self._fault("spk2gender", f"speaker '{speaker}' is missing", "Add it")
        return gender

    def _speaker_order(self, speakers: dict[str, str]) -> None:
        order = [speaker for _, speaker in sorted(speakers.items())]
        for before, after in pairwise(order):
            if after < before:
                self._fault(
                    "utt2spk",
                    f"speaker '{before}' sorts after '{after}' but its utterances before",
                    "Begin utterance ids with the speaker's id",
                )
                return

    def _spk2utt(self, speakers: dict[str, str]) -> None:
        if not self._path("spk2utt").is_file():
            return
        fix = "Make it from utt2spk: utils/utt2spk_to_spk2utt.pl"
        listed = set()
        for speaker, names in self._table("spk2utt", "speaker without utterances").items():
            for name in names.split():
                listed.add(name)
                if speakers.get(name) != speaker:
                    told = speakers.get(name, "nobody")
                    what = f"gives '{name}' to '{speaker}', utt2spk to '{told}'"
                    self._fault("spk2utt", what, fix)
        for name in sorted(set(speakers) - listed):
            self._fault("spk2utt", f"lacks utterance '{name}'", fix)


def channel_number(name: str) -> int:
    """0 for A, a or 1; 1 for B, b or 2; ...; -1 for what is no channel."""
    if len(name) != 1:
        return -1
    return "123456789".find(name) if name.isdigit() else "ABCDEFGH".find(name.upper())
