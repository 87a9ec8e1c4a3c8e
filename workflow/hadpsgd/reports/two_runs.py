"""Errors of two runs on the same sentences: what one got right and the other wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from hadpsgd.reports.stretches import AROUND, Stretch, heard, said
from hadpsgd.scoring.align import Counts, Edit
from hadpsgd.scoring.nist import Sentence

OUTCOMES = ("both right", "first alone right", "second alone right", "both wrong")


@dataclass(frozen=True)
class Side:
    """What a run has in a column: an edit and where its word was recognised; nothing where the
    run has no edit there."""

    edit: Edit | None = None
    stretch: Stretch | None = None

    @property
    def right(self) -> bool:
        """Whether it is no error."""
        return self.edit is None or self.edit.kind == "C"


@dataclass(frozen=True)
class Column:
    """A word of the reference (None: between words), where it was said, and both runs."""

    ref: str | None
    said: Stretch | None
    first: Side
    second: Side


@dataclass(frozen=True)
class Pair:
    """A sentence as two runs recognised it."""

    first: Sentence
    second: Sentence

    @property
    def apart(self) -> int:
        """Errors of the first run minus those of the second."""
        return self.first.counts.errors - self.second.counts.errors

    @cached_property
    def alike(self) -> bool:
        """Whether both were compared with the same words: of alternatives in the reference each
        run is given those that fit it best."""
        return _words(self.first) == _words(self.second)

    @cached_property
    def columns(self) -> list[Column]:
        """Both alignments side by side; where the references are not alike one after the other."""
        one, two = _gaps(self.first), _gaps(self.second)
        places = _said(self.first, self.second) if self.alike else []
        if not self.alike:
            return [
                *(Column(s.edit.ref, None, s, Side()) for gap in one for s in gap if s.edit),
                *(Column(s.edit.ref, None, Side(), s) for gap in two for s in gap if s.edit),
            ]
        found: list[Column] = []
        for number, (a, b) in enumerate(zip(one, two, strict=True)):
            word = number > 0  # the first gap is before all words
            if word:
                reference = a[0].edit.ref if a[0].edit else None
                found.append(Column(reference, places[number - 1], a[0], b[0]))
            more, others = a[word:], b[word:]
            for i in range(max(len(more), len(others))):
                sides = (row[i] if i < len(row) else Side() for row in (more, others))
                found.append(Column(None, None, *sides))
        return found


@dataclass(frozen=True, kw_only=True)
class WordCount:
    """How often a word of the reference was recognised by one of the runs alone."""

    word: str
    first: int
    second: int


@dataclass(frozen=True)
class TwoRuns:
    """Sentences of a set in the order of the first run's."""

    pairs: Sequence[Pair]

    @classmethod
    def of(cls, first: Sequence[Sentence], second: Sequence[Sentence]) -> TwoRuns:
        """Match sentences by name.

        Raises:
            ValueError: the runs were scored on different sets.
        """
        there = {sentence.name: sentence for sentence in second}
        names = [sentence.name for sentence in first]
        if there.keys() != set(names) or len(names) != len(second):
            raise ValueError("the runs were scored on different sets")
        return cls([Pair(sentence, there[sentence.name]) for sentence in first])

    @property
    def totals(self) -> tuple[Counts, Counts]:
        """Counts of both runs."""
        return (
            sum((pair.first.counts for pair in self.pairs), Counts()),
            sum((pair.second.counts for pair in self.pairs), Counts()),
        )

    @cached_property
    def words(self) -> dict[str, int]:
        """Words of the reference by outcome; of sentences whose references are alike."""
        found = Counter(_outcome(c) for p in self.pairs if p.alike for c in p.columns if c.ref)
        return {outcome: found[outcome] for outcome in OUTCOMES}

    @property
    def sentences(self) -> dict[str, int]:
        """Sentences by which run has fewer errors."""
        found = Counter(outcome(pair) for pair in self.pairs)
        return {kind: found[kind] for kind in SENTENCES}

    @property
    def unlike(self) -> int:
        """Sentences whose words are not counted."""
        return sum(not pair.alike for pair in self.pairs)

    @cached_property
    def changed(self) -> list[WordCount]:
        """Words that one run alone got right, those with the largest difference first."""
        won: tuple[Counter[str], Counter[str]] = Counter(), Counter()
        for pair in self.pairs:
            for column in pair.columns if pair.alike else ():
                if column.ref and column.first.right != column.second.right:
                    won[column.second.right][column.ref] += 1
        rows = [
            WordCount(word=word, first=won[0][word], second=won[1][word])
            for word in won[0].keys() | won[1]
        ]
        return sorted(rows, key=lambda r: (-abs(r.first - r.second), -r.first - r.second, r.word))

    @cached_property
    def wrong(self) -> list[Pair]:
        """Sentences that a run has wrong, the largest difference first."""
        wrong = [p for p in self.pairs if p.first.counts.errors or p.second.counts.errors]
        return sorted(wrong, key=lambda p: (-abs(p.apart), -_errors(p), p.first.name))


FIRST, SECOND, EQUAL, RIGHT = SENTENCES = (
    "first better",
    "second better",
    "as many errors",
    "both right",
)


def outcome(pair: Pair) -> str:
    """Which run has fewer errors in a sentence."""
    if pair.apart:
        return FIRST if pair.apart < 0 else SECOND
    return EQUAL if _errors(pair) else RIGHT


def _outcome(column: Column) -> str:
    wrong = (not column.second.right) + 2 * (not column.first.right)
    return OUTCOMES[wrong]


def _errors(pair: Pair) -> int:
    return pair.first.counts.errors + pair.second.counts.errors


def _words(sentence: Sentence) -> list[str]:
    return [edit.ref for edit in sentence.edits if edit.ref is not None]


def _gaps(sentence: Sentence) -> list[list[Side]]:
    """What is put in before all words, then of each word it and what is put in after it."""
    gaps: list[list[Side]] = [[]]
    for edit, stretch in zip(sentence.edits, heard(sentence), strict=True):
        if edit.ref is not None:
            gaps.append([])
        gaps[-1].append(Side(edit, stretch))
    return gaps


def _said(first: Sentence, second: Sentence) -> list[Stretch | None]:
    """Where each word was said: where a run has it right; otherwise the narrower of the places
    between neighbours."""
    found = []
    sides = [
        [place for place, edit in zip(said(s), s.edits, strict=True) if edit.ref is not None]
        for s in (first, second)
    ]
    for both in zip(*sides, strict=True):
        known = [stretch for stretch in both if stretch]
        known.sort(key=lambda s: (s.source == AROUND, s.end - s.begin))
        found.append(known[0] if known else None)
    return found
