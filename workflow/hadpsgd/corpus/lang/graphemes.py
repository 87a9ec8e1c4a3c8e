"""Spellings as pronunciations: every letter is a phone."""

from __future__ import annotations

import unicodedata
from dataclasses import replace

from hadpsgd.corpus.lang.dictionary import (
    Dictionary,
    Pronunciation,
    refuse_silence_probabilities,
)
from hadpsgd.errors import UserError


def graphemes(text: str) -> tuple[str, ...]:
    """The letters, digits and combining marks of a text, in lower case.

    Other signs (apostrophe, hyphen) are not spoken.
    """
    return tuple(sign for sign in text.lower() if unicodedata.category(sign)[0] in "LMN")


def non_words(dictionary: Dictionary) -> dict[str, Pronunciation]:
    """Words pronounced by silence phones alone: silence, noise, unknown words."""
    quiet = {phone for group in dictionary.silence for phone in group}
    return {p.word: p for p in dictionary.lexicon if quiet.issuperset(p.phones)}


def spelled(dictionary: Dictionary) -> Dictionary:
    """The same words, pronounced as they are spelled; words of noise keep their phones.

    Raises:
        UserError: a word has no letters, or a letter has the name of a silence phone, or there
            are silence probabilities by pronunciation.
    """
    refuse_silence_probabilities(dictionary, key="lang.units: graphemes")
    noises = non_words(dictionary)
    lexicon: dict[str, Pronunciation] = dict(noises)
    for entry in dictionary.lexicon:
        if entry.word not in lexicon:
            letters = graphemes(entry.word)
            if not letters:
                raise UserError(
                    f"lang.units: word '{entry.word}' has no letters to spell",
                    fix="Remove it from the lexicon, or pronounce it by a noise phone",
                )
            lexicon[entry.word] = Pronunciation(entry.word, 1.0, letters)
    return with_lexicon(dictionary, tuple(lexicon.values()))


def with_lexicon(dictionary: Dictionary, lexicon: tuple[Pronunciation, ...]) -> Dictionary:
    """Another lexicon of letters on the same silence phones; questions of phones are dropped.

    Raises:
        UserError: a letter has the name of a silence phone.
    """
    quiet = {phone for group in dictionary.silence for phone in group}
    letters = sorted({phone for p in lexicon for phone in p.phones} - quiet)
    clash = {phone for p in lexicon for phone in p.phones if len(phone) == 1} & quiet
    if clash:
        raise UserError(
            f"lang.units: silence phone '{sorted(clash)[0]}' is also a letter", fix="Rename it"
        )
    questions = tuple(group for group in dictionary.extra_questions if quiet.issuperset(group))
    groups = tuple((letter,) for letter in letters)
    return replace(dictionary, lexicon=lexicon, nonsilence=groups, extra_questions=questions)
