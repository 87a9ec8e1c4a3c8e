"""Phones and words with their times, from the transition-ids of a path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hadpsgd.corpus.lang.word_match import WordMatcher
from hadpsgd.decoding import lattice
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
class WordAligner(WordMatcher):
    """Times of the words of paths."""

    unaligned: int = 0
    """Paths that the lexicon does not explain: their words begin where their labels are."""

    def words(self, path: lattice.Path, phones: Sequence[Span]) -> list[Span]:
        """The words of a path with their times; the last one may be cut off."""
        labels = tuple(path.words.tolist())
        cuts = self.match(labels, tuple(span.label for span in phones), cut=True)
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


def _frames(phones: Sequence[Span], first: int, last: int) -> tuple[int, int]:
    """Begin and end of phones first .. last - 1; of none, the place between."""
    if first < last:
        return phones[first].begin, phones[last - 1].end
    place = phones[first].begin if first < len(phones) else phones[-1].end
    return place, place
