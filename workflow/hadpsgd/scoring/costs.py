"""NIST's costs of aligning words (SCTK's word.c).

Substitution 4, insertion and deletion 3, of an optional word 2, of nothing (@) 0.001, nothing for
nothing 1.
"""

from __future__ import annotations

import numpy as np

from hadpsgd.scoring.network import Word

SUBSTITUTION, GAP, OPTIONAL_GAP, NULL_PAIR = 4.0, 3.0, 2.0, 1.0
# sclite adds in single precision, where some sums with it tie that do not in double; the other
# sums are whole numbers, exact in both
NULL_GAP: float = np.float32(0.001)  # type: ignore[assignment]


def same(a: Word, b: Word, fragments: bool) -> bool:
    """Whether two words match; with `fragments`, th- matches all words that begin so."""
    if a.text == b.text:
        return True
    if not fragments:
        return False
    for one, other in ((a.text, b.text), (b.text, a.text)):
        if len(one) > 1 and one.startswith("-"):
            return other.endswith(one[1:])
        if len(one) > 1 and one.endswith("-"):
            return other.startswith(one[:-1])
    return False


def gap_cost(word: Word) -> float:
    """What a word without a partner costs."""
    if word.is_null:
        return NULL_GAP
    return OPTIONAL_GAP if word.optional else GAP


def pair_cost(a: Word, b: Word, fragments: bool) -> float:
    """What two words cost that stand for one another."""
    if a.is_null and b.is_null:
        return NULL_PAIR
    return 0.0 if same(a, b, fragments) else SUBSTITUTION
