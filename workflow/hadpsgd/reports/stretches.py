"""Where in a recording the words of an alignment are: what was said, and what was recognised."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from hadpsgd.scoring.formats import TimedWord
from hadpsgd.scoring.nist import Sentence

ALIGNED, RECOGNISED, AROUND = "forced alignment", "as recognised", "between its neighbours"


@dataclass(frozen=True)
class Stretch:
    """Seconds of the recording, how they are known, and how sure the recogniser was."""

    begin: float
    end: float
    source: str
    confidence: float | None = None


def heard(sentence: Sentence) -> list[Stretch | None]:
    """Of each edit, where its recognised word is: the word's time in the CTM."""
    arcs = [None, *_arcs(sentence.words)]
    found: list[Stretch | None] = []
    for edit in sentence.edits:
        word = arcs[edit.hyp_arc] if 0 < edit.hyp_arc < len(arcs) else None
        found.append(_stretch(word, RECOGNISED) if edit.hyp is not None and word else None)
    return found


def said(sentence: Sentence, aligned: Sequence[TimedWord] = ()) -> list[Stretch | None]:
    """Of each edit, where its word of the reference is.

    Args:
        sentence: the alignment.
        aligned: the words of the reference with their times, where they are known. They may be
            written otherwise than the reference that is scored; those that are the same count.

    A word without such a time, but recognised rightly, was said where it was recognised. Others lie
    between the nearest words before and after whose place is known, together with their like.
    """
    places = [i for i, edit in enumerate(sentence.edits) if edit.ref is not None]
    known: list[Stretch | None] = [
        stretch if edit.kind == "C" and edit.ref is not None else None
        for edit, stretch in zip(sentence.edits, heard(sentence), strict=True)
    ]
    texts = [str(sentence.edits[i].ref).lower() for i in places]
    matcher = SequenceMatcher(None, texts, [w.word.lower() for w in aligned], autojunk=False)
    for first, other, size in matcher.get_matching_blocks():
        for place, word in zip(places[first : first + size], aligned[other:], strict=False):
            known[place] = _stretch(word, ALIGNED)
    return _filled(sentence, known, places)


def _filled(
    sentence: Sentence, known: list[Stretch | None], places: Sequence[int]
) -> list[Stretch | None]:
    """With a stretch also for words whose own is not known."""
    filled, segment = list(known), sentence.segment
    first, last = (segment.begin, segment.end) if segment else (None, None)
    for number, place in enumerate(places):
        if known[place] is None:
            before = next((k for i in places[:number][::-1] if (k := known[i])), None)
            after = next((k for i in places[number + 1 :] if (k := known[i])), None)
            begin = before.end if before else first
            end = after.begin if after else last
            if begin is not None and end is not None and begin < end:
                filled[place] = Stretch(begin, end, AROUND)
    return filled


def _stretch(word: TimedWord, source: str) -> Stretch:
    return Stretch(word.begin, word.begin + word.duration, source, word.confidence)


def _arcs(words: Sequence[TimedWord]) -> Iterator[TimedWord | None]:
    """The words of a CTM by their arcs in its network: marks of alternatives have none, an
    alternative that says nothing has one (scoring/network.py)."""
    empty = False
    for word in words:
        mark = word.word.upper()
        if not mark.startswith("<ALT"):
            empty = False
            yield word
            continue
        if empty and mark != "<ALT_BEGIN>":
            yield None
        empty = mark != "<ALT_END>"
