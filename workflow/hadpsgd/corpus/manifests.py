"""lhotse's manifests as data directories: recordings and supervisions, or cuts, as JSON lines.

Formats: lhotse's Recording (sources with channels), SupervisionSegment and MonoCut, as its
`to_file` writes them. lhotse itself is not needed.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hadpsgd.config.lhotse import Manifests
from hadpsgd.corpus import audio
from hadpsgd.corpus.datadir import MAX_OVERSHOOT, DataDir, Utterance
from hadpsgd.corpus.stm import lines_of
from hadpsgd.errors import UserError
from hadpsgd.files import is_file

_BEFORE = 0.005
"""Seconds by which a supervision may begin before its recording does: sums of floats, rounding."""
_ROUND = 6
"""Decimals of a second; lhotse's sums of floats have more."""
_STRANGE_SPACE = re.compile(r"[^\S \t]")
"""What no table can have in a line: its end, and white space that Kaldi takes for letters."""
_EARLY = re.compile(r"[\s\x00-\x2d]")
"""White space, `-` and what sorts before it. A speaker's name with such a sign inside would sort
its utterances among those of a speaker whose name is its beginning."""


@dataclass
class Read:
    """A data directory in the making."""

    data: DataDir
    silent: list[str] = field(default_factory=list)
    """Supervisions without text, which are left out."""

    places: dict[str, str] = field(default_factory=dict)
    """Manifest and line of each recording."""

    said: dict[str, str] = field(default_factory=dict)
    """The same of each utterance's text."""

    @property
    def total(self) -> int:
        """Supervisions that were there."""
        return len(self.data.utterances) + len(self.silent)


def read(manifests: Manifests, folder: Path) -> Read:
    """Read a set.

    Args:
        manifests: where it stands.
        folder: the data directory that it will be.

    Raises:
        UserError: a manifest is missing or a line is not what it should be (file and line are
            named), a recording is missing, is no file, or is changed on the fly.
    """
    found = _Set(Read(DataDir(folder, {})))
    if manifests.cuts is not None:
        for where, cut in _lines(Path(manifests.cuts)):
            found.cut(cut, where)
    else:
        assert manifests.recordings is not None and manifests.supervisions is not None
        for where, recording in _lines(Path(manifests.recordings)):
            found.recording(recording, where)
        for where, supervision in _lines(Path(manifests.supervisions)):
            found.supervision(supervision, where, offset=0.0)
    data = found.made.data
    if not data.utterances:
        raise UserError("no supervision with text", where=manifests.files[-1])
    data.utterances = dict(sorted(data.utterances.items()))
    return found.made


def all_or_no_genders(data: DataDir, where: str) -> None:
    """Kaldi's spk2gender has every speaker or is not there: leave out what some have, and say so.

    `where` the speakers stand.
    """
    unknown = sorted({utterance.speaker for utterance in data} - data.gender.keys())
    if unknown and data.gender:
        what = f"no gender of {len(unknown)} of its speakers ({unknown[0]})"
        print(f"{where}: {what}: genders are left out", file=sys.stderr)
        data.gender.clear()


def _lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(lines_of(path), 1):
        where = f"{path}:{number}"
        try:
            item = json.loads(line)
        except ValueError:
            item = None
        if not isinstance(item, dict):
            fix = "Give lhotse's JSON lines (.jsonl or .jsonl.gz)"
            raise UserError("no JSON object in this line", where=where, fix=fix)
        yield where, item


class _Set:
    """Takes lines of manifests in."""

    def __init__(self, made: Read) -> None:
        self.made = made
        self._channels: dict[str, dict[int, tuple[str, int]]] = {}
        self._seconds: dict[str, float] = {}
        self._where: dict[str, str] = {}
        self._sides: dict[str, str] = {}
        """What recordings are called here to what the manifests call them."""
        self._speakers: dict[str, str] = {}
        """Ids of speakers to what the manifests call them."""

    def recording(self, item: dict[str, Any], where: str) -> None:
        name = _get(item, "id", str, where)
        if not name or any(letter.isspace() for letter in name):
            what = f"white space in {name!r}" if name else "an empty `id`"
            fix = "Rename the recording, in supervisions, too"
            raise UserError(what, where=where, fix=fix)
        if name in self._channels:
            raise UserError(f"a second recording {name}", where=where)
        if item.get("transforms"):
            what = f"recording {name} is changed on the fly (transforms)"
            raise UserError(what, where=where, fix="Save the audio: lhotse's save_audios")
        self._channels[name] = found = {}
        self._where[name] = where
        if "duration" in item:
            self._seconds[name] = _number(item, "duration", where)
        for source in _objects(item, "sources", where):
            kind = _get(source, "type", str, where)
            if kind != "file":
                what = f"recording {name} is of the kind '{kind}'"
                raise UserError(what, where=where, fix="Give files: lhotse's save_audios")
            place = str(Path(_get(source, "source", str, where)).absolute())
            if place != place.strip() or audio.is_pipe(place) or _STRANGE_SPACE.search(place):
                what = f"recording {name}: {place!r} cannot be read by its name"
                fix = "Rename it: no white space but spaces inside, no | at the end"
                raise UserError(what, where=where, fix=fix)
            for index, channel in enumerate(_get(source, "channels", list, where)):
                if not isinstance(channel, int):
                    what = f"recording {name}: a channel that is no number: {channel}"
                    raise UserError(what, where=where)
                found[channel] = (place, index)

    def cut(self, item: dict[str, Any], where: str) -> None:
        if item.get("type") != "MonoCut":
            what = f"a cut of the kind '{item.get('type')}'"
            raise UserError(what, where=where, fix="Give cuts of one recording: MonoCut")
        recording = _get(item, "recording", dict, where)
        if recording.get("id") not in self._channels:
            self.recording(recording, where)
        begin = _number(item, "start", where)
        for supervision in _objects(item, "supervisions", where):
            self.supervision(supervision, where, offset=begin)

    def supervision(self, item: dict[str, Any], where: str, *, offset: float) -> None:
        name, recording = (_get(item, key, str, where) for key in ("id", "recording_id"))
        channel = _channel(item, name, where)
        known = self._channels.get(recording)
        if known is None or not isinstance(channel, int) or channel not in known:
            what = f"no recording '{recording}'" + (f" with channel {channel}" if known else "")
            raise UserError(f"supervision {name}: {what}", where=where)
        begin, seconds = offset + _number(item, "start", where), _number(item, "duration", where)
        self._check_times(name, recording, where, begin=begin, seconds=seconds)
        side = self._side(recording, channel, where)
        speaker, utterance = self._ids(name, _text(item, "speaker", where) or side, where)
        words = " ".join(_text(item, "text", where).split())
        data = self.made.data
        if utterance in data.utterances:
            raise UserError(f"a second supervision {name}", where=where)
        if not words:
            self.made.silent.append(utterance)
            return
        place, index = known[channel]
        if side not in data.recordings and not is_file(Path(place)):
            what = f"recording {recording}: missing audio file {place}"
            raise UserError(what, where=self._where[recording], fix="Correct `source`")
        data.recordings[side] = place
        self.made.places[side] = self._where[recording]
        if len(known) > 1:
            data.channels[side] = recording, _letter(channel)
        if (gender := _text(item, "gender", where)[:1].lower()) in ("f", "m"):
            data.gender[speaker] = gender
        self.made.said[utterance] = where
        data.utterances[utterance] = Utterance(
            id=utterance,
            speaker=speaker,
            recording=side,
            text=words,
            start=max(round(begin, _ROUND), 0.0),
            end=round(begin + seconds, _ROUND),
            channel=index,
        )

    def _side(self, recording: str, channel: int, where: str) -> str:
        """What a channel of a recording is called; a recording of one as it is."""
        alone = len(self._channels[recording]) == 1
        side = recording if alone else f"{recording}-{_letter(channel)}"
        if (other := self._sides.setdefault(side, recording)) != recording:
            what = f"recordings '{other}' and '{recording}' would both be called {side}"
            raise UserError(what, where=where, fix="Rename one of them")
        return side

    def _ids(self, name: str, called: str, where: str) -> tuple[str, str]:
        """Of a supervision's speaker and utterance: they sort alike, as Kaldi wants it."""
        speaker = _EARLY.sub("_", called)
        known = self._speakers.setdefault(speaker, called)
        if known != called:
            what = f"'{known}' and '{called}' would both be the speaker {speaker}"
            raise UserError(what, where=where, fix="Rename one of them")
        begins = name == called or name.startswith(f"{called}-")
        utterance = speaker + (name.removeprefix(called) if begins else f"-{name}")
        if any(letter.isspace() for letter in utterance):  # of the name: the speaker's is gone
            raise UserError(f"white space in {name!r}", where=where, fix="Rename the supervision")
        return speaker, utterance

    def _check_times(
        self, name: str, recording: str, where: str, *, begin: float, seconds: float
    ) -> None:
        length = self._seconds.get(recording, math.inf)
        if seconds <= 0 or begin < -_BEFORE or begin + seconds > length + MAX_OVERSHOOT:
            of = f" of recording {recording}" + (f" ({length:g} s)" if length < math.inf else "")
            what = f"supervision {name}: {begin:g} to {begin + seconds:g} s{of}"
            raise UserError(what, where=where, fix="Correct `start` and `duration`, or remove it")


def _letter(channel: int) -> str:
    return "AB"[channel] if channel < 2 else str(channel + 1)


def _get(item: dict[str, Any], key: str, kind: type[Any], where: str) -> Any:
    value = item.get(key)
    if not isinstance(value, kind):
        raise UserError(f"no `{key}` here, or of another type than {kind.__name__}", where=where)
    return value


def _objects(item: dict[str, Any], key: str, where: str) -> Iterator[dict[str, Any]]:
    for value in _get(item, key, list, where):
        if not isinstance(value, dict):
            raise UserError(f"no object in `{key}`", where=where)
        yield value


def _channel(item: dict[str, Any], name: str, where: str) -> Any:
    """Of a supervision, which may write the one as a list."""
    channel = item.get("channel", 0)
    if not isinstance(channel, list):
        return channel
    if len(channel) != 1:
        what = f"supervision {name}: of {len(channel)} channels"
        raise UserError(what, where=where, fix="Give each channel a supervision of its own")
    return channel[0]


def _text(item: dict[str, Any], key: str, where: str) -> str:
    """Empty where there is none; speakers may be numbers."""
    value = item.get(key)
    if value is None:
        return ""
    if not isinstance(value, str | int if key == "speaker" else str):
        raise UserError(f"`{key}` is no text", where=where)
    return str(value)


def _number(item: dict[str, Any], key: str, where: str) -> float:
    value = item.get(key)
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise UserError(f"no number `{key}` here", where=where)
    return float(value)
