"""References and hypotheses after the rules of a GLM, as NIST's hubscr filters them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from hadpsgd.corpus.glm import Glm
from hadpsgd.corpus.stm import Segment
from hadpsgd.errors import UserError
from hadpsgd.scoring.formats import TimedWord


def filter_segments(glm: Glm, segments: Iterable[Segment]) -> Iterator[Segment]:
    """Reference segments after the rules.

    Raises:
        UserError: parentheses that do not fit.
    """
    for segment in segments:
        try:
            yield replace(segment, text=glm.filter(segment.text))
        except ValueError as error:
            where = f"{segment.file} {segment.channel} {segment.begin:.2f}"
            raise UserError(str(error), where=where) from None


def filter_words(glm: Glm, words: Iterable[TimedWord]) -> Iterator[TimedWord]:
    """Timed words after the rules; a word that becomes several shares its time among them.

    Raises:
        UserError: parentheses that do not fit.
    """
    for word in words:
        if word.word.upper().startswith("<ALT"):
            yield word
            continue
        try:
            text = glm.filter(word.word)
        except ValueError as error:
            raise UserError(str(error), where=f"{word.file} {word.begin:.2f} {word.word}") from None
        yield from _spread(word, text)


def _spread(word: TimedWord, text: str) -> Iterator[TimedWord]:
    spaced = re.sub(r"([{}])", r" \1 ", text).split()
    if len(spaced) < 2:
        yield from (replace(word, word=part) for part in spaced)
        return
    options = [
        part.replace("{", "").replace("}", "").split() for part in " ".join(spaced).split("/")
    ]
    mark = replace(word, begin=0.0, duration=0.0)
    for number, option in enumerate(options):
        if len(options) > 1:
            yield replace(mark, word="<ALT>" if number else "<ALT_BEGIN>")
        length = word.duration / max(len(option), 1)
        for place, part in enumerate(option):
            yield replace(word, begin=word.begin + place * length, duration=length, word=part)
    if len(options) > 1:
        yield replace(mark, word="<ALT_END>")
