"""What language models take of memory, by the files that they are made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from hadpsgd.lm.train import BYTES_A_WORD, BYTES_A_WORD_AND_ORDER
from hadpsgd.texts import is_arpa, is_gzipped

LEAST = 4000
"""MB: libraries, words, checks, and what a small corpus needs."""
_LETTERS = 4
"""Bytes of a word in a text, with its space; more as a rule."""
_NGRAM = 30
"""Bytes of an n-gram in an ARPA file; more as a rule."""
_MIXED = 65
"""Bytes of memory for an n-gram while models are mixed: benchmarks/lm_scale.py."""
_HELD = 20
"""Bytes of memory for an n-gram of a model that rescores lattices: benchmarks/lm_scale.py."""
_PACKED = 4
"""What gzip makes smaller."""


def needed_mb(paths: Iterable[str | Path], order: int) -> int:
    """MB for a model of texts and ARPA files, gzipped or not; of files that are not there yet none.

    Raises:
        UserError: a file is no text.
    """
    total = 0.0
    for path, size in _sizes(paths):
        a_word = (BYTES_A_WORD + BYTES_A_WORD_AND_ORDER * order) / _LETTERS
        total += size * (_MIXED / _NGRAM if is_arpa(path) else a_word)
    return LEAST + int(total / 1e6)


def held_mb(paths: Iterable[str | Path]) -> int:
    """MB of the ARPA files among some files while they rescore; of those not there yet none."""
    sizes = (size for path, size in _sizes(paths) if is_arpa(path))
    return int(sum(sizes) * _HELD / _NGRAM / 1e6)


def _sizes(paths: Iterable[str | Path]) -> Iterator[tuple[Path, int]]:
    """Files that are there, and their bytes, unpacked."""
    for path in map(Path, paths):
        if path.exists():
            yield path, path.stat().st_size * (_PACKED if is_gzipped(path) else 1)
