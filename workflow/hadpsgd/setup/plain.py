"""Transcripts as people write them to words: lower case, without punctuation.

An apostrophe at the edge of a word is a part of it ('cause, the dogs' house), or a quotation mark
('so he said'). Only a text that has one before a word and one behind the same or a later word can
have quotation marks: all of such a text are left out, those of others stay.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hadpsgd.corpus.lang.graphemes import graphemes
from hadpsgd.progress import counted

_NAMED = 5
_INNER = "'-"
_AROUND = '.,;:!?"\u2026'
_MARK = re.compile(r"<[^<>]+>|\[[^][]+\]")
_SPOKEN = frozenset("&%+@=$\u20ac\u00a3")
"""Signs that people may read aloud."""
_APOSTROPHES = "\u2018\u2019\u201b\u02bc\u2032\uff07\u0060\u00b4"
"""What stands for one: quotation marks, a letter, a prime, accents."""
_SAME = str.maketrans({**dict.fromkeys(_APOSTROPHES, "'"), "\u2010": "-", "\u2011": "-"})
_LOW = re.compile(r"(?<!\w)\u201a(?=\w)")
"""Opens a quotation in German; elsewhere it is a comma."""
_EDGES = re.compile(r"(['-]*)(.*?)(['-]*)")


@dataclass(frozen=True, kw_only=True)
class Plain:
    """A text in plain words."""

    words: tuple[str, ...] = ()
    signs: frozenset[str] = frozenset()
    """Those left out though they may be spoken."""
    kept: tuple[str, ...] = ()
    """Words that keep an apostrophe at an edge."""
    bare: tuple[str, ...] = ()
    """Words that lost one, as they were written."""


def plain(text: str) -> Plain:
    """A text's words; apostrophes and hyphens stay inside words.

    Words have letters or digits; `it's`, `x-ray`, `42` are words, `--` is none. `[noise]` and
    `<noise>` stay as they are written, as in Kaldi's data: they are noise there, no words.
    """
    text = _LOW.sub("'", unicodedata.normalize("NFC", text)).translate(_SAME)
    pieces: list[str] = []
    signs: set[str] = set()
    for token in text.split():
        if mark := _mark(token):
            pieces.append(mark)
        else:
            pieces.extend(_pieces(token.lower()))
            signs |= _SPOKEN.intersection(token)
    return _without_quotes(pieces, frozenset(signs))


def _mark(token: str) -> str:
    """`[noise]` or `<noise>`, without punctuation around it; empty where it is none."""
    bare = token.strip(_AROUND)
    return bare if _MARK.fullmatch(bare) and graphemes(bare) else ""


def _pieces(token: str) -> list[str]:
    signs = (c if unicodedata.category(c)[0] in "LMN" or c in _INNER else " " for c in token)
    return "".join(signs).split()


def _without_quotes(pieces: Sequence[str], signs: frozenset[str]) -> Plain:
    """Words of pieces of letters, apostrophes and hyphens."""
    parts = [match.groups() for piece in pieces if (match := _EDGES.fullmatch(piece))]
    quoted = _has_quotation(parts)
    words, kept, bare = [], [], []
    for before, word, behind in parts:
        if not word:
            continue
        # two are a quotation mark; one behind a number is a sign: feet, minutes
        first, last = ("'" if edge.strip("-") == "'" else "" for edge in (before, behind))
        if quoted or (last and not first and not word[-1].isalpha()):
            bare += [first + word + last] if first or last else []
            first = last = ""
        if first or last:
            kept.append(first + word + last)
        words.append(first + word + last)
    return Plain(words=tuple(words), signs=signs, kept=tuple(kept), bare=tuple(bare))


def _has_quotation(parts: Iterable[Sequence[str]]) -> bool:
    """Whether an apostrophe may open a quotation that a later one closes."""
    opened = False
    for before, word, behind in parts:
        if opened and not word and "'" in before:
            return True
        opened = opened or "'" in before
        if opened and "'" in behind:
            return True
    return False


def changes(texts: Iterable[Plain]) -> Iterator[str]:
    """Lines that say what is no longer as it was written, or may have been meant otherwise."""
    texts = list(texts)
    signs = frozenset[str]().union(*(text.signs for text in texts))
    if signs:
        named = ", ".join(sorted(signs))
        yield f"signs that may be spoken are left out ({named}); write them as they are spoken"
    if kept := Counter(word for text in texts for word in text.kept):
        yield f"{_words(kept)} with an apostrophe at an edge, which is kept: {_often(kept)}"
    if bare := Counter(word for text in texts for word in text.bare):
        yield (
            f"{_words(bare)} without the apostrophe at an edge, which may be a quotation mark: "
            f'{_often(bare)}; write quotations between "...", and those that are none stay'
        )


def _words(found: Counter[str]) -> str:
    return counted(found.total(), "word")


def _often(found: Counter[str]) -> str:
    often = sorted(found, key=lambda word: (-found[word], word))
    return ", ".join(often[:_NAMED]) + (", ..." if len(often) > _NAMED else "")
