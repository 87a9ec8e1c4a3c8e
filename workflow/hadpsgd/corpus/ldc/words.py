"""Words of Switchboard's transcripts and dictionary as Kaldi's egs/swbd/s5c writes them.

The rules are those of its local/swbd1_data_prep.sh, swbd1_map_words.pl and
map_acronyms_transcripts.py. One differs: of AMMU[N]IT- that script keeps N (a slip, as its comment
says AMMU-IT-); here it is what the comment says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_RULES = [
    (re.compile(pattern, re.IGNORECASE), new)
    for pattern, new in (
        (r"^(-?)\[laughter-(.+)\](-?)$", r"\1\2\3"),  # said laughing: [laughter-story]
        (r"^\[(.+)/.+\](-?)$", r"\1\2"),  # said otherwise than meant: [it'n/isn't]
        (r"^(-?)\[[^\]\[]+\](.+)$", r"-\2"),  # without its begin: -[an]y
        (r"^(.+)\[[^\]\[]+\](-?)$", r"\1-"),  # broken off: ab[solute]-
        (r"([^\]\[]+)\[.+\]$", r"\1"),  # the same, misspelt: ex[specially]-/especially]
        (r"^\{(.+)\}$", r"\1"),  # made up: {yuppiedom}
        (r"([a-z])\[[^\]\[]+\]([a-z])", r"\1-\2"),  # without its middle: ammu[n]it-
        (r"_\d", ""),  # which pronunciation: them_1
    )
]
_MARKS = re.compile(r"[\[{_]")
_ASIDE = re.compile(r"<[be]_aside>", re.IGNORECASE)
_SILENCE = "[silence]"
NOISES = ("[laughter]", "[noise]", "[vocalized-noise]")
"""What stays of the sounds that are no speech; each is a word of the lexicon."""

Acronyms = Mapping[str, str]
"""A word of transcripts, in its own case, to the lexicon's: IBM to i._b._m."""


def mapped(word: str) -> str:
    """A word without what marks how it was said, in its own case."""
    if word.lower() in NOISES or not _MARKS.search(word):
        return word
    for pattern, new in _RULES:
        word = pattern.sub(new, word, count=1)
    return word


def switchboard_words(text: str, acronyms: Acronyms) -> str:
    """A transcript of MS98 in the lexicon's words; empty where nobody speaks or makes a noise."""
    words = [word for word in _ASIDE.sub("", text).split() if word.lower() != _SILENCE]
    return " ".join(_joined([mapped(word) for word in words], acronyms)).lower()


def _joined(words: Sequence[str], acronyms: Acronyms) -> list[str]:
    """Acronyms in the lexicon's form. I is a letter beside other letters alone, else the word."""
    found = []
    for place, word in enumerate(words):
        beside = [*words[max(place - 1, 0) : place], *words[place + 1 : place + 2]]
        if word == "I" and not any(map(_is_letter, beside)):
            found.append(word)
        else:
            found.append(acronyms.get(word, word))
    return found


def _is_letter(word: str) -> bool:
    return len(word) == 1 and "A" <= word <= "Z"
