"""Pieces of words put together again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hadpsgd.corpus.lang.lexicon_fst import SOUND, WORD_END, WORD_START


def begins_word(piece: str) -> bool:
    """Whether it begins a word, rather than to go on with one."""
    return piece.startswith(WORD_START)


def is_pieces(names: Iterable[str]) -> bool:
    """Whether a vocabulary is of pieces."""
    return any(map(begins_word, names))


def groups(pieces: Sequence[str]) -> list[range]:
    """Which pieces make up each word: a word goes up to the next piece that begins one."""
    begins = [i for i, piece in enumerate(pieces) if i == 0 or begins_word(piece)]
    ends = [*begins[1:], len(pieces)][: len(begins)]
    return [range(begin, end) for begin, end in zip(begins, ends, strict=True)]


def letters(piece: str) -> str:
    """The letters of a piece, without what they sound like."""
    return piece.partition(SOUND)[0]


def joined(pieces: Sequence[str]) -> str:
    """The word of its pieces; empty for a lone word start."""
    return "".join(letters(piece) for piece in pieces if piece != WORD_END).removeprefix(WORD_START)
