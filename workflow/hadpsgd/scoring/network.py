"""A transcript as a network of words: alternations, tags and marks as NIST writes them.

`{ um / uh / @ }` are alternatives (@ is nothing), they may be nested; `word;tag1;tag2` has tags,
which do not count, `\\;` is a plain semicolon; `(word)` may be left out; `th-` and `-ing` are
fragments; a star at the end of a word is dropped. Source: SCTK's sclite, word.c and net_adt.c.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from hadpsgd.texts import words_of

NULL = "@"
_TOKEN = re.compile(r"[{}/]|[^\s{}/][^\s{}]*", re.ASCII)
_TAGS = re.compile(r"(?<!\\);")


@dataclass(frozen=True)
class Word:
    """One word: its text (lower case), and whether it may be left out."""

    text: str
    optional: bool = False

    @property
    def is_null(self) -> bool:
        """It is @, which stands for nothing."""
        return self.text == NULL


@dataclass
class Network:
    """Arcs in an order in which every arc comes after those that may precede it.

    words: of arcs 1, 2, ...; entry 0 is the start and unused.
    before: the arcs that may directly precede each arc; [0] where it may come first.
    ends: the arcs that may come last; [0] for an empty network.
    """

    words: list[Word] = field(default_factory=lambda: [Word("")])
    before: list[list[int]] = field(default_factory=lambda: [[]])
    ends: list[int] = field(default_factory=lambda: [0])

    def add(self, word: Word, before: list[int]) -> int:
        """Add an arc; returns its number."""
        self.words.append(word)
        self.before.append(before)
        return len(self.words) - 1


class Mark(Enum):
    """What stands around alternatives: braces of a transcript, marks of a CTM."""

    BEGIN = "{"
    NEXT = "/"
    END = "}"


_BRACES = {mark.value: mark for mark in Mark}
_TIMED = {"<ALT_BEGIN>": Mark.BEGIN, "<ALT>": Mark.NEXT, "<ALT_END>": Mark.END}


class NetworkError(ValueError):
    """Braces that do not fit."""


def word(token: str, *, optional_deletion: bool = False) -> Word:
    """A word of a transcript without its tags, in lower case."""
    text = _TAGS.split(token, maxsplit=1)[0].replace("\\;", ";").lower()
    if len(text) > 1 and text.endswith("*"):
        text = text[:-1]
    if optional_deletion and len(text) > 2 and text.startswith("(") and text.endswith(")"):
        return Word(text[1:-1], optional=True)
    return Word(text)


def parse(text: str, *, optional_deletion: bool = False) -> Network:
    """The network of a transcript.

    Raises:
        NetworkError: an alternation is not closed, or is closed without being opened.
    """
    if "{" not in text and "}" not in text:
        return linear(words_of(text), optional_deletion=optional_deletion)
    tokens = [_BRACES.get(token, token) for token in _TOKEN.findall(text)]
    return _branching(tokens, optional_deletion=optional_deletion)


def recognised(words: Sequence[str], *, optional_deletion: bool = False) -> Network:
    """The network of a CTM's words, in which `<ALT_BEGIN>`, `<ALT>` and `<ALT_END>` are marks, and
    braces letters, as for sclite.

    Raises:
        NetworkError: an alternation is not closed, or is closed without being opened.
    """
    tokens = [_TIMED.get(word.upper(), word) for word in words]
    return _branching(tokens, optional_deletion=optional_deletion)


def _branching(tokens: Sequence[str | Mark], *, optional_deletion: bool) -> Network:
    network = Network()
    before = [0]
    open_: list[tuple[list[int], list[int]]] = []  # of each BEGIN: the arcs before, the last ones
    for token in tokens:
        if token is Mark.BEGIN:
            open_.append((before, []))
        elif token is Mark.END or (token is Mark.NEXT and open_):
            if not open_:
                raise NetworkError("'}' without '{'")
            begin, ends = open_[-1]
            if before is begin:  # nothing between the slashes
                before = [network.add(Word(NULL), begin)]
            ends += before
            before = begin
            if token is Mark.END:
                open_.pop()
                before = ends
        else:
            text = token.value if isinstance(token, Mark) else token
            before = [network.add(word(text, optional_deletion=optional_deletion), before)]
    if open_:
        raise NetworkError("'{' without '}'")
    network.ends = before
    return network


def linear(words: Sequence[str], *, optional_deletion: bool = False) -> Network:
    """The network of words without alternations."""
    network = Network()
    for token in words:
        last = network.add(word(token, optional_deletion=optional_deletion), network.ends)
        network.ends = [last]
    return network
