"""Transcripts as files: text, CTM, JSON, subtitles (SRT, WebVTT), TextGrid."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hadpsgd.alignment.views import Interval, text_grid
from hadpsgd.files import file_name, write_text
from hadpsgd.scoring.formats import TimedWord
from hadpsgd.scoring.transcribe.transcript import Segment, Transcript

_LETTERS, _SECONDS = 84, 6.0  # of a subtitle: two lines of 42, as broadcasters have them


def text(found: Transcript) -> str:
    """A line a segment; with its channel where there are several."""
    several = len(found.channels) > 1
    lines = (f"{s.channel}: {s.text}" if several else s.text for s in found.spoken)
    return "".join(f"{line}\n" for line in lines)


def ctm(found: Transcript) -> str:
    """NIST's time marked words, with confidences."""
    return "".join(f"{word.line()}\n" for word in found.words)


def as_json(found: Transcript) -> str:
    """Everything, times in seconds."""
    content: dict[str, Any] = {
        "name": found.name,
        "seconds": round(found.seconds, 3),
        "channels": list(found.channels),
        "segments": [
            {
                "channel": segment.channel,
                "speaker": segment.speaker,
                "begin": round(segment.begin, 3),
                "end": round(segment.end, 3),
                "text": segment.text,
                "words": [entry(word) for word in segment.words],
            }
            for segment in found.segments
        ],
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def entry(word: TimedWord) -> dict[str, Any]:
    """A word with its times in seconds, and its confidence or None."""
    return {
        "word": word.word,
        "begin": round(word.begin, 3),
        "end": round(word.begin + word.duration, 3),
        "confidence": None if word.confidence is None else round(word.confidence, 4),
    }


def srt(found: Transcript) -> str:
    """SubRip subtitles."""
    several = len(found.channels) > 1
    parts = []
    for number, (begin, end, channel, said) in enumerate(_cues(found), 1):
        line = f"{channel}: {said}" if several else said
        parts.append(f"{number}\n{_clock(begin, ',')} --> {_clock(end, ',')}\n{line}\n\n")
    return "".join(parts)


def vtt(found: Transcript) -> str:
    """WebVTT subtitles; channels are voices."""
    several = len(found.channels) > 1
    parts = ["WEBVTT\n\n"]
    for begin, end, channel, said in _cues(found):
        escaped = said.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        line = f"<v {channel}>{escaped}" if several else escaped
        parts.append(f"{_clock(begin, '.')} --> {_clock(end, '.')}\n{line}\n\n")
    return "".join(parts)


def textgrid(found: Transcript) -> str:
    """A TextGrid of Praat: a tier of words for each channel, over the whole recording."""
    return text_grid({name: list(_tier(found, name)) for name in found.channels})


FORMATS: dict[str, Callable[[Transcript], str]] = {
    "txt": text,
    "ctm": ctm,
    "json": as_json,
    "srt": srt,
    "vtt": vtt,
    "TextGrid": textgrid,
}
"""By ending of the file's name."""


def write(found: Transcript, out: Path, formats: Sequence[str]) -> None:
    """Write OUT/<name>.<ending> in each format."""
    folder, _, name = found.name.rpartition("/")
    for ending in formats:
        path = out / folder / f"{file_name(name)}.{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, FORMATS[ending](found))


def _tier(found: Transcript, channel: str) -> Iterator[Interval]:
    """Words and the pauses between them, without gaps."""
    place = 0.0
    for word in (word for word in found.words if word.channel == channel):
        begin, end = max(word.begin, place), min(word.begin + word.duration, found.seconds)
        if end <= begin:
            continue
        if begin > place:
            yield Interval(place, begin, "")
        yield Interval(begin, end, word.word)
        place = end
    if found.seconds > place:
        yield Interval(place, found.seconds, "")


def _cues(found: Transcript) -> Iterator[tuple[float, float, str, str]]:
    """Begin, end, channel and text of subtitles, by their begin."""
    cues = [
        (words[0].begin, words[-1].begin + words[-1].duration, segment.channel,
         " ".join(word.word for word in words))
        for segment in found.spoken
        for words in _parts(segment)
    ]  # fmt: skip
    yield from sorted(cues, key=lambda cue: (cue[0], cue[2]))


def _parts(segment: Segment) -> Iterator[list[TimedWord]]:
    """Words of a segment, as many together as a subtitle shows."""
    part: list[TimedWord] = []
    letters = 0
    for word in segment.words:
        late = part and word.begin + word.duration - part[0].begin > _SECONDS
        if part and (late or letters + 1 + len(word.word) > _LETTERS):
            yield part
            part, letters = [], 0
        part.append(word)
        letters += 1 + len(word.word)
    if part:
        yield part


def _clock(seconds: float, mark: str) -> str:
    """`01:02:03,456`."""
    milliseconds = round(seconds * 1000)
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{rest // 1000:02d}{mark}{rest % 1000:03d}"
