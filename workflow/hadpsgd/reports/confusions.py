"""What was taken for what: pairs of words, words left out and put in, each with where it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hadpsgd.reports.bins import seconds
from hadpsgd.scoring.nist import Sentence

TOP = 50
"""Listed of each kind."""
EXAMPLES = 3
"""Places of each that can be heard."""
_UNKNOWN_LENGTH = 1e9


@dataclass(frozen=True, kw_only=True)
class Place:
    """An edit of a sentence, by their numbers."""

    sentence: int
    edit: int


@dataclass(frozen=True)
class Confusion:
    """A word said (None: nothing was), what was recognised (None: nothing), and all its places,
    those in short sentences first."""

    ref: str | None
    hyp: str | None
    places: tuple[Place, ...]

    @property
    def count(self) -> int:
        """How often."""
        return len(self.places)

    @property
    def words(self) -> list[str]:
        """Its one word, or both."""
        return [word for word in (self.ref, self.hyp) if word is not None]

    @property
    def examples(self) -> tuple[Place, ...]:
        """The first places, of sentences that differ."""
        first: dict[int, Place] = {}
        for place in self.places:
            first.setdefault(place.sentence, place)
        return tuple(first.values())[:EXAMPLES]


@dataclass(frozen=True)
class Confusions:
    """Of each kind the most frequent first."""

    substituted: list[Confusion]
    deleted: list[Confusion]
    inserted: list[Confusion]

    @cached_property
    def kinds(self) -> dict[str, list[Confusion]]:
        """By name."""
        return {
            "substituted": self.substituted,
            "deleted": self.deleted,
            "inserted": self.inserted,
        }

    def heard_first(self) -> list[int]:
        """Sentences of the examples: one of each confusion that is listed, then the next."""
        listed = [c.examples for rows in self.kinds.values() for c in rows[:TOP]]
        return [e[turn].sentence for turn in range(EXAMPLES) for e in listed if turn < len(e)]

    def as_json(self) -> dict[str, list[Any]]:
        """What is listed, for programs: words and how often."""
        return {
            kind: [[*row.words, row.count] for row in rows[:TOP]]
            for kind, rows in self.kinds.items()
        }


def confusions(sentences: Sequence[Sentence]) -> Confusions:
    """All confusions of a set."""
    found: dict[str, dict[tuple[str | None, str | None], list[Place]]] = {
        kind: {} for kind in "SDIC"
    }
    order = sorted(range(len(sentences)), key=lambda i: _length(sentences[i]))
    for number in order:
        for place, edit in enumerate(sentences[number].edits):
            if edit.kind != "C":
                pairs = found[edit.kind]
                pairs.setdefault((edit.ref, edit.hyp), []).append(
                    Place(sentence=number, edit=place)
                )

    def ordered(kind: str) -> list[Confusion]:
        rows = [Confusion(ref, hyp, tuple(at)) for (ref, hyp), at in found[kind].items()]
        return sorted(rows, key=lambda row: (-row.count, row.words))

    return Confusions(ordered("S"), ordered("D"), ordered("I"))


def _length(sentence: Sentence) -> float:
    known = seconds(sentence)
    return _UNKNOWN_LENGTH if known is None else known
