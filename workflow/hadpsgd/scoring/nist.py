"""Counts by speaker as NIST's sclite makes them, from STM and CTM files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from hadpsgd.corpus.stm import Segment
from hadpsgd.errors import UserError
from hadpsgd.scoring.align import Counts, Edit, align
from hadpsgd.scoring.formats import TimedWord
from hadpsgd.scoring.network import NetworkError, parse, recognised


@dataclass(frozen=True, kw_only=True)
class Options:
    """Sclite's options: fragments match what they begin (-F), (word) may be left out (-D)."""

    fragments: bool = False
    optional_deletion: bool = False


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """One scored segment. `words` are the CTM's."""

    name: str
    speaker: str
    edits: list[Edit]
    segment: Segment | None = None
    words: tuple[TimedWord, ...] = ()

    @cached_property
    def counts(self) -> Counts:
        """Its counts; each comparison of two runs asks for them again."""
        return Counts.of(self.edits)


def align_texts(
    ref: str, hyp: str | Sequence[str], options: Options, where: object = None
) -> list[Edit]:
    """Align a transcript with another, or with the words of a CTM, where braces are letters. Both
    may hold alternations.

    Raises:
        UserError: an alternation is not closed.
    """
    optional = options.optional_deletion
    try:
        said = parse(ref, optional_deletion=optional)
        if isinstance(hyp, str):
            heard = parse(hyp, optional_deletion=optional)
        else:
            heard = recognised(hyp, optional_deletion=optional)
    except NetworkError as error:
        raise UserError(str(error), where=where) from None
    return align(said, heard, fragments=options.fragments)


def score_ctm(
    segments: Sequence[Segment], words: Iterable[TimedWord], options: Options = Options()
) -> list[Sentence]:
    """Score timed words against reference segments.

    A word belongs to the first segment of its file and channel that ends after its middle; the
    last one takes what is left (SCTK's stm2ctm.c).

    Raises:
        UserError: words of a file or channel that the reference lacks, or bad alternations.
    """
    waiting: dict[tuple[str, str], list[TimedWord]] = {}
    for word in words:
        waiting.setdefault(word.key, []).append(word)
    unknown = waiting.keys() - {segment.key for segment in segments}
    if unknown:
        file, channel = sorted(unknown)[0]
        raise UserError(f"the reference has no file '{file}' with channel '{channel}'")
    last = {segment.key: i for i, segment in enumerate(segments)}
    sentences: list[Sentence] = []
    numbers: dict[str, int] = {}
    for i, segment in enumerate(segments):
        mine = _take(waiting.get(segment.key, []), None if last[segment.key] == i else segment.end)
        if segment.ignored:
            continue
        speaker = segment.speaker.lower()
        number = numbers[speaker] = numbers.get(speaker, -1) + 1
        name = f"{speaker}-{number:03d}"
        edits = align_texts(segment.text, [word.word for word in mine], options, f"segment {name}")
        sentences.append(
            Sentence(name=name, speaker=speaker, edits=edits, segment=segment, words=tuple(mine))
        )
    return sentences


def _take(words: list[TimedWord], end: float | None) -> list[TimedWord]:
    """Remove and return the words before `end`; an alternation stays together."""
    count = len(words) if end is None else 0
    while end is not None and count < len(words):
        upto = count + 1
        if words[count].word.upper() == "<ALT_BEGIN>":
            while upto < len(words) and words[upto - 1].word.upper() != "<ALT_END>":
                upto += 1
        if max(word.middle for word in words[count:upto]) >= end:
            break
        count = upto
    taken, words[:] = words[:count], words[count:]
    return taken


def by_speaker(sentences: Iterable[Sentence]) -> dict[str, Counts]:
    """Counts of every speaker, in order of appearance."""
    table: dict[str, Counts] = {}
    for sentence in sentences:
        table[sentence.speaker] = table.get(sentence.speaker, Counts()) + sentence.counts
    return table


def total(sentences: Iterable[Sentence]) -> Counts:
    """Counts of all."""
    return sum((sentence.counts for sentence in sentences), Counts())
