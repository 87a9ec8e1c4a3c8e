"""Phones and words with their times, from the transition-ids of a path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hadpsgd.decoding import lattice
from hadpsgd.errors import UserError
from hadpsgd.graph.transitions import Transitions

FRAME_SHIFT = 0.01  # seconds


@dataclass(frozen=True, kw_only=True)
class Span:
    """A phone or word (its id) over frames begin .. end - 1."""

    label: int
    begin: int
    end: int


def phone_spans(path: lattice.Path, transitions: Transitions) -> list[Span]:
    """Phones of a path. A phone ends with its final transition and the self-loops after it
    (Kaldi's SplitToPhones, with reordered self-loops)."""
    ids = path.transitions
    if len(ids) == 0:
        return []
    ended = np.maximum.accumulate(np.where(~transitions.loop[ids], np.arange(len(ids)), -1))
    last_ended = (ended >= 0) & transitions.final[ids[ended]]
    follows = np.append(~transitions.loop[ids[1:]], True)
    ends = np.flatnonzero(last_ended & follows) + 1
    if not len(ends) or ends[-1] != len(ids):
        ends = np.append(ends, len(ids))
    begins = np.concatenate([[0], ends[:-1]])
    return [
        Span(label=int(transitions.phone[ids[begin]]), begin=int(begin), end=int(end))
        for begin, end in zip(begins, ends, strict=True)
    ]


@dataclass
class WordAligner:
    """Finds which phones of a path belong to which word, by the lexicon of the lang folder.

    pronunciations: word to its phone sequences; those of word 0 are optional silences.
    """

    pronunciations: dict[int, list[tuple[int, ...]]] = field(default_factory=dict)
    unaligned: int = 0
    """Paths that the lexicon does not explain: their words begin where their labels are."""

    @classmethod
    def read(cls, folder: Path) -> WordAligner:
        """Read `phones/align_lexicon.int` of a graph or decoding folder.

        Raises:
            UserError: it is missing or holds something else than numbers.
        """
        path = Path(folder) / "phones" / "align_lexicon.int"
        table: dict[int, list[tuple[int, ...]]] = {}
        try:
            for line in path.read_text().splitlines():
                _, word, *phones = map(int, line.split())
                table.setdefault(word, []).append(tuple(phones))
        except FileNotFoundError:
            raise UserError("missing", where=path, fix="Make the lang folder again") from None
        except ValueError:
            raise UserError("not lines of `word word phones`", where=path) from None
        return cls(table)

    def words(self, path: lattice.Path, phones: Sequence[Span]) -> list[Span]:
        """The words of a path with their times; the last one may be cut off."""
        labels = tuple(path.words.tolist())
        cuts = self._match(labels, tuple(span.label for span in phones))
        if cuts is None:
            self.unaligned += 1
            starts = path.word_frames.tolist()
            times = list(zip(starts, [*starts[1:], len(path.transitions)], strict=True))
        else:
            times = [_frames(phones, first, last) for first, last in cuts]
        return [
            Span(label=label, begin=begin, end=end)
            for label, (begin, end) in zip(labels, times, strict=True)
        ]

    def _match(
        self, words: tuple[int, ...], phones: tuple[int, ...]
    ) -> list[tuple[int, int]] | None:
        """First and last phone (exclusive) of every word, or None.

        The first way that fits, depth first: the nearest silences, pronunciations in their order.
        """
        if not words:
            return []
        cuts: list[tuple[int, int]] = []
        waiting = [self._ways(words, phones, 0, 0)]  # of each word so far, what is not tried yet
        dead: set[tuple[int, int]] = set()  # (words said, phones passed) from which nothing fits
        while waiting:
            said = len(waiting)
            way = next((w for w in waiting[-1] if (said, w[1]) not in dead), None)
            if way is None:
                waiting.pop()
                dead.add((said - 1, cuts[-1][1] if cuts else 0))
                if cuts:
                    cuts.pop()
            elif said < len(words):
                cuts.append(way)
                waiting.append(self._ways(words, phones, said, way[1]))
            elif len(phones) in _after_silences(way[1], phones, self._silences):
                return [*cuts, way]
        return None

    def _ways(
        self, words: tuple[int, ...], phones: tuple[int, ...], word: int, phone: int
    ) -> Iterator[tuple[int, int]]:
        """Where a word may begin and end, of those before it ending at a phone."""
        last = word == len(words) - 1
        for begin in _after_silences(phone, phones, self._silences):
            for form in self.pronunciations.get(words[word], []):
                end = begin + len(form)
                there = phones[begin:end]
                cut_off = last and end >= len(phones)
                if there == form or (cut_off and there and there == form[: len(there)]):
                    yield begin, min(end, len(phones))

    @property
    def _silences(self) -> list[tuple[int, ...]]:
        return self.pronunciations.get(0, [])


def _frames(phones: Sequence[Span], first: int, last: int) -> tuple[int, int]:
    """Begin and end of phones first .. last - 1; of none, the place between."""
    if first < last:
        return phones[first].begin, phones[last - 1].end
    place = phones[first].begin if first < len(phones) else phones[-1].end
    return place, place


def _after_silences(
    at: int, phones: tuple[int, ...], silences: Sequence[tuple[int, ...]]
) -> list[int]:
    """Places that can be reached by passing optional silences, nearest first."""
    places = [at]
    for place in places:  # grows while it is read
        for form in silences:
            beyond = place + len(form)
            if form and phones[place:beyond] == form and beyond not in places:
                places.append(beyond)
    return places
