"""Error rates of groups of sentences: by their length, by how noisy they are."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hadpsgd.scoring.align import Counts
from hadpsgd.scoring.nist import Sentence

WORDS = (1, 2, 4, 8, 16, 32)
SECONDS = (1, 2, 4, 8, 16)
DECIBELS = (0, 5, 10, 15, 20, 25, 30, 35, 40)
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Bin:
    """Sentences whose value is in a range, and their counts."""

    name: str
    counts: Counts

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        c = self.counts
        return {"name": self.name, "sentences": c.sentences, "words": c.words, "errors": c.errors}


def lengths(sentences: Sequence[Sentence]) -> list[Bin]:
    """By words of the reference."""
    return _binned(sentences, {s.name: float(s.counts.words) for s in sentences}, WORDS, whole=True)


def durations(sentences: Sequence[Sentence]) -> list[Bin]:
    """By seconds of the segment."""
    return _binned(sentences, {s.name: seconds(s) for s in sentences}, SECONDS)


def noise(sentences: Sequence[Sentence], decibels: Mapping[str, float | None]) -> list[Bin]:
    """By signal-to-noise ratio, given by the names of sentences."""
    return _binned(sentences, decibels, DECIBELS)


def seconds(sentence: Sentence) -> float | None:
    """How long its segment is; None where it has none."""
    return sentence.segment.end - sentence.segment.begin if sentence.segment else None


def _binned(
    sentences: Sequence[Sentence],
    values: Mapping[str, float | None],
    edges: Sequence[int],
    whole: bool = False,
) -> list[Bin]:
    """Every sentence in one bin, each of which begins with an edge; without empty ones."""
    names = [
        f"below {edges[0]}",
        *(
            _range(low, high, whole=whole)
            for low, high in zip(edges, [*edges[1:], None], strict=True)
        ),
        UNKNOWN,
    ]
    if whole and edges[0] == 1:
        names[0] = "0"
    counts = [Counts() for _ in names]
    for sentence in sentences:
        value = values.get(sentence.name)
        place = len(names) - 1 if value is None else bisect_right(edges, value)
        counts[place] += sentence.counts
    return [Bin(name, c) for name, c in zip(names, counts, strict=True) if c.sentences]


def _range(low: int, high: int | None, *, whole: bool) -> str:
    if high is None:
        return f"{low} and more"
    if not whole:
        return f"{low} to {high}"
    return str(low) if high == low + 1 else f"{low} to {high - 1}"
