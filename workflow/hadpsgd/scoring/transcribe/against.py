"""Transcripts scored against a reference: an STM file, or lines `NAME words`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hadpsgd.corpus.glm import read as rules_of
from hadpsgd.corpus.stm import Segment, is_comment, lines_of
from hadpsgd.errors import UserError
from hadpsgd.scoring.filters import Filters
from hadpsgd.scoring.formats import TimedWord, in_order
from hadpsgd.scoring.reference import Reference
from hadpsgd.scoring.scored import Scored
from hadpsgd.scoring.transcribe.transcript import Transcript
from hadpsgd.texts import words_of

_NAMED = 5
_OTHER_NAMES = {"1": "A", "2": "B", "A": "1", "B": "2"}
"""Channels go by numbers or letters."""


def score(reference: Path, found: Sequence[Transcript], keys: Sequence[str], filters: Filters,
          *, glm: Path | None = None) -> Scored:  # fmt: skip
    """Score recordings; `keys` are their names in CTM files.

    Segments of an STM for other recordings are left out; a recording without any is not scored.

    Raises:
        UserError: the reference is missing or damaged, or has none of the recordings.
    """
    if reference.name.lower().endswith("stm"):
        read = Reference.read(stm=reference, glm_path=glm)
        known = {key.lower() for key in keys}
        segments = [s for s in read.segments if s.file.lower() in known]
        whole = Reference(segments, read.glm, read.comments)
    else:
        whole = Reference(_of_lines(reference, found, keys, filters), glm)
    if not whole.segments:
        raise _of_others(reference, keys)
    named = {(s.file.lower(), s.channel.upper()) for s in whole.segments}
    _tell_of_others(reference, keys, {file for file, _ in named})
    _tell_of_absent(reference, keys)
    words = [_as_named(word, named) for each in found for word in each.words]
    files = {file for file, _ in named}
    scored = [word for word in words if word.file.lower() in files]
    return Scored.of(whole, in_order(scored), nist_tools=False)


def check(reference: Path, keys: Sequence[str], *, glm: Path | None = None) -> None:
    """What can be known before hours of recordings are transcribed.

    Raises:
        UserError: reference or GLM is missing or damaged, or has none of the recordings.
    """
    if glm:
        rules_of(glm, "stm")
    if _names(reference).isdisjoint(key.lower() for key in keys):
        raise _of_others(reference, keys)


def _of_others(reference: Path, keys: Sequence[str]) -> UserError:
    return UserError(
        f"has none of the recordings ({', '.join(keys[:3])})",
        where=reference,
        fix="Name them as in the CTM: without ending, spaces as _",
    )


def _tell_of_others(reference: Path, keys: Sequence[str], scored: set[str]) -> None:
    """A name that is written otherwise there would make the error rate that of the others."""
    others = [key for key in keys if key.lower() not in scored]
    if others:
        some = ", ".join(others[:_NAMED]) + ", ..." * (len(others) > _NAMED)
        what = f"{len(others)} of {len(keys)} recordings are not in it and not scored: {some}"
        print(f"warning: {reference}: {what}", file=sys.stderr)


def _tell_of_absent(reference: Path, keys: Sequence[str]) -> None:
    """The same of names that no recording has."""
    names = _names(reference)
    absent = sorted(names - {key.lower() for key in keys})
    if absent:
        some = ", ".join(absent[:_NAMED]) + ", ..." * (len(absent) > _NAMED)
        what = f"{len(absent)} of its {len(names)} recordings were not given: {some}"
        print(f"warning: {reference}: {what}", file=sys.stderr)


def _names(reference: Path) -> set[str]:
    """Of the recordings that it has, in lower case."""
    if reference.name.lower().endswith("stm"):
        return {s.file.lower() for s in Reference.read(stm=reference).segments}
    return set(_texts(reference))


def _of_lines(
    path: Path, found: Sequence[Transcript], keys: Sequence[str], filters: Filters
) -> list[Segment]:
    """A segment for each recording of one channel: all of it."""
    texts = _texts(path)
    segments = []
    for each, key in zip(found, keys, strict=True):
        if key.lower() not in texts:
            continue
        if len(each.channels) > 1:
            what = f"{key} has {len(each.channels)} channels, and a line does not say which speaks"
            raise UserError(what, where=path, fix="Give an STM file")
        said = filters.text(texts[key.lower()])
        end = max(each.seconds, 0.01)
        segments.append(Segment(file=key, channel="1", speaker=key, begin=0.0, end=end, text=said))
    return sorted(segments, key=lambda s: s.file)


def _texts(path: Path) -> dict[str, str]:
    """Lines `NAME words`: words by name, in lower case; spaces or tabulators between.

    Raises:
        UserError: a name is there twice, or the file cannot be read.
    """
    texts: dict[str, str] = {}
    for number, line in enumerate(lines_of(path), 1):
        if not is_comment(line):
            key, *words = words_of(line)
            if key.lower() in texts:
                raise UserError(f"{key} is there twice", where=f"{path}:{number}")
            texts[key.lower()] = " ".join(words)
    return texts


def _as_named(word: TimedWord, named: set[tuple[str, str]]) -> TimedWord:
    """The word with its channel as the reference calls it; `named`: in lower and upper case."""
    file, other = word.file.lower(), _OTHER_NAMES.get(word.channel)
    if (file, word.channel) in named or other is None or (file, other) not in named:
        return word
    return replace(word, channel=other)
