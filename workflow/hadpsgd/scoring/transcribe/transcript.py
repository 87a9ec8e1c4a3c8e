"""What was said in a recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hadpsgd.scoring.formats import TimedWord, in_order


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A stretch of one speaker, and its words; times in seconds from the recording's start."""

    channel: str
    speaker: str
    begin: float
    end: float
    words: tuple[TimedWord, ...]

    @property
    def text(self) -> str:
        """Its words."""
        return " ".join(word.word for word in self.words)


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """A recording's segments, by time."""

    name: str
    seconds: float
    channels: tuple[str, ...]
    segments: tuple[Segment, ...]

    @property
    def spoken(self) -> list[Segment]:
        """Segments that have words."""
        return [segment for segment in self.segments if segment.words]

    @property
    def words(self) -> list[TimedWord]:
        """All words, in NIST's order."""
        return in_order(word for segment in self.segments for word in segment.words)


def channel_names(count: int) -> tuple[str, ...]:
    """As CTM and STM call channels: 1 where there is one, else A, B, ..."""
    if count == 1:
        return ("1",)
    return tuple(chr(ord("A") + i) if i < 26 else str(i + 1) for i in range(count))


def by_time(segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """Segments of all channels in the order of their begin."""
    return tuple(sorted(segments, key=lambda s: (s.begin, s.channel)))
