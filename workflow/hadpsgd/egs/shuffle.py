"""A seeded random order of n things in constant memory: a Feistel permutation.

A balanced Feistel network permutes the pairs (left, right) of half-words; values that fall
outside of [0, n) are sent through it again until they fall inside (cycle walking: Black and
Rogaway, "Ciphers with arbitrary finite domains", 2002), which makes it a permutation of [0, n).
The order of 34 million subsequences so costs no index, and any part of it is computed alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 6
_MULTIPLIER_1 = np.uint64(0xFF51AFD7ED558CCD)  # MurmurHash3's finaliser
_MULTIPLIER_2 = np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT = np.uint64(33)


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble each of the values (a bijection)."""
    values = (values ^ (values >> _SHIFT)) * _MULTIPLIER_1
    values = (values ^ (values >> _SHIFT)) * _MULTIPLIER_2
    return values ^ (values >> _SHIFT)


class Permutation:
    """A permutation of [0, size) that the seeds choose; evaluated where it is asked."""

    def __init__(self, size: int, *seeds: int) -> None:
        """Different seeds (run, epoch) give independent orders."""
        self.size = size
        half = (max(size - 1, 1).bit_length() + 1) // 2
        self._half = np.uint64(half)
        self._mask = np.uint64((1 << half) - 1)
        entropy = np.random.SeedSequence(list(seeds))
        self._keys = entropy.generate_state(_ROUNDS, np.uint64)

    def __call__(self, positions: NDArray[np.integer]) -> NDArray[np.int64]:
        """The elements at the given positions of the order, int64 of the same shape."""
        values = self._once(np.asarray(positions).astype(np.uint64))
        outside = np.flatnonzero(values >= self.size)
        while len(outside):
            values[outside] = self._once(values[outside])
            outside = outside[values[outside] >= self.size]
        return values.astype(np.int64)

    def _once(self, values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        left, right = values >> self._half, values & self._mask
        for key in self._keys:
            left, right = right, left ^ (mix(right ^ key) & self._mask)
        return (left << self._half) | right


class RunOrder:
    """A seeded order of n things that keeps runs of neighbours together.

    Whole runs change places; what is left over, fewer than a run, comes last. Where the first run
    begins is drawn anew with every seed, so that other neighbours come together and others are
    left over. Sets of fewer than `FEWEST_RUNS` are shuffled one by one.
    """

    FEWEST_RUNS = 1000

    def __init__(self, size: int, *seeds: int, run: int) -> None:
        """`run` things stay together; 1 is a `Permutation`."""
        self._run = run if size >= run * self.FEWEST_RUNS else 1
        self._size = size
        self._whole = size // self._run
        self._runs = Permutation(self._whole, *seeds)
        entropy = np.random.SeedSequence([*seeds, run])
        self._first = int(entropy.generate_state(1, np.uint64)[0] % size) if self._run > 1 else 0

    def __call__(self, positions: NDArray[np.integer]) -> NDArray[np.int64]:
        """The elements at the given positions of the order, int64 of the same shape."""
        if self._run == 1:
            return self._runs(positions)
        runs, within = np.divmod(np.asarray(positions).astype(np.int64), self._run)
        left_over = runs == self._whole
        runs = np.where(left_over, runs, self._runs(np.where(left_over, 0, runs)))
        return (runs * self._run + within + self._first) % self._size
