"""Pronunciations of the words of transcripts."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

from hadpsgd.corpus.builtin.espeak import Espeak
from hadpsgd.corpus.builtin.phones import make_lexicon, to_phones
from hadpsgd.corpus.dictdir import SPOKEN_NOISE, Pronunciations
from hadpsgd.corpus.lang.graphemes import graphemes
from hadpsgd.errors import UserError

LETTERS, ENGLISH = "letters", "english"
"""Where pronunciations come from if not from a lexicon."""
_ACCENT = "en-us"


def spelled(words: Iterable[str]) -> Pronunciations:
    """Every word letter by letter; `<noise>` and `[noise]` are spoken noise."""
    return {
        word: [(SPOKEN_NOISE,) if _is_noise(word) else graphemes(word)]
        for word in sorted(words)
        if _is_noise(word) or graphemes(word)
    }


def english(words: Iterable[str], sentences: Sequence[str]) -> Pronunciations:
    """American English as espeak-ng pronounces it, alone and in these sentences.

    Raises:
        UserError: a word that it does not take for English.
    """
    espeak = Espeak()
    espeak.accent(_ACCENT)
    plain = sorted(word for word in words if not _is_noise(word))
    for word in plain:
        if not all(_is_latin(sign) for sign in word):  # espeak-ng would say "Chinese letter"
            raise _not_english(word, "it is not in Latin letters")
        try:
            phones = to_phones([p for group in espeak.phonemes(word.lower()) for p in group])
        except ValueError as error:
            raise _not_english(word, str(error)) from None
        if not phones:
            raise _not_english(word, "nothing is spoken")
    known = set(plain)
    usable = [sentence for sentence in sentences if known.issuperset(sentence.split())]
    noises = {word: [(SPOKEN_NOISE,)] for word in sorted(words) if _is_noise(word)}
    return {**noises, **make_lexicon(espeak, [_ACCENT], plain, usable)}


def _is_noise(word: str) -> bool:
    return (word[0], word[-1]) in (("<", ">"), ("[", "]"))


def _is_latin(sign: str) -> bool:
    return not sign.isalpha() or unicodedata.name(sign, "").startswith("LATIN")


def _not_english(word: str, why: str) -> UserError:
    return UserError(
        f"'{word}' has no English pronunciation ({why})",
        where=f"--lexicon {ENGLISH}",
        fix=f"Correct the word, or take --lexicon {LETTERS}",
    )
