"""Words that look like one of a lexicon and are written in other characters."""

from __future__ import annotations

import unicodedata
from collections.abc import Container, Iterable


def alike(words: Iterable[str], lexicon: Container[str]) -> dict[str, str]:
    """Those of `words` that look like a word of the lexicon; and that word.

    They differ in Unicode's form alone (an accent of its own, or as one sign with its letter), or
    by characters that nobody sees (a zero-width space).
    """
    wanted = {word: _seen(word) for word in words}
    if not wanted or not isinstance(lexicon, Iterable):
        return {}
    looks = set(wanted.values())
    found = {seen: entry for entry in lexicon if (seen := _seen(entry)) in looks}
    return {word: found[seen] for word, seen in wanted.items() if seen in found}


def difference(word: str, *, entry: str) -> str:
    """What only tells words apart that look alike."""
    here, there = (" ".join(f"U+{ord(c):04X}" for c in w if not c.isascii()) for w in (word, entry))
    return f"it has {here or 'ASCII alone'}, and '{entry}' there {there or 'ASCII alone'}"


def _seen(word: str) -> str:
    """What is seen of a word, in Unicode's composed form."""
    seen = (sign for sign in word if unicodedata.category(sign) != "Cf")
    return unicodedata.normalize("NFC", "".join(seen))
