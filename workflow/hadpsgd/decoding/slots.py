"""Small numbers for large keys: a hash table over arrays, whose size goes by what is in it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hadpsgd.decoding.search_graph import Indices

_LEAST_BITS = 12
_ROOM = 8  # places for each key: few keys meet at one
_FACTOR = np.int64(-7046029254386353131)  # 2^64 divided by the golden ratio (Knuth, Vol. 3, 6.4)


class Slots:
    """Numbers keys from 0, those that come together in the order of their last appearances.

    A search numbers the states that it is in, of all states and utterances: an array over these
    would be mostly empty, and large in every process. Collisions go to the next place.
    """

    def __init__(self) -> None:
        self.keys: Indices = np.zeros(0, np.int64)
        """int64 [numbers]: the key of each number."""
        self._places: Indices = np.zeros(0, np.int64)
        self._resize(_LEAST_BITS)

    def clear(self) -> None:
        """Forget all keys."""
        self._table[self._places] = -1
        self.keys = self._places = np.zeros(0, np.int64)

    def add(self, keys: Indices) -> Indices:
        """Number keys (int64 [n], not negative, in any order, some perhaps more than once); int64
        [n]."""
        known = len(self.keys)
        self._reserve(known + len(keys))
        numbers = np.arange(known + len(keys))
        mine = numbers[known:]
        every = np.concatenate([self.keys, keys]) if known else keys
        places = self._place(keys)
        found = self._claim(places, mine) if known else self._take(places, mine)
        left = (every.take(found) != keys).nonzero()[0]
        while len(left):
            moved = places.take(left)
            moved += 1
            moved &= self._mask
            places[left] = moved
            held = self._claim(moved, mine.take(left))
            found[left] = held
            left = left.take((every.take(held) != keys.take(left)).nonzero()[0])
        new = (found == mine).nonzero()[0]
        if not len(new):
            return found
        # without gaps, where one of each stands for all its like
        mine[new] = numbers[known : known + len(new)].copy()
        self._keep(keys.take(new), places.take(new))
        return numbers.take(found)

    def find(self, keys: Indices) -> Indices:
        """int64 [n]: their numbers, -1 where a key has none."""
        if not len(self.keys):
            return np.full(len(keys), -1)
        places = self._place(keys)
        found = self._table.take(places).astype(np.int64)
        left = ((found >= 0) & (self.keys.take(found) != keys)).nonzero()[0]
        while len(left):
            places[left] = moved = (places.take(left) + 1) & self._mask
            found[left] = held = self._table.take(moved)
            left = left.take(((held >= 0) & (self.keys.take(held) != keys.take(left))).nonzero()[0])
        return found

    def _place(self, keys: Indices) -> Indices:
        places = keys * _FACTOR
        places >>= self._shift
        places &= self._mask
        return places

    def _claim(self, places: Indices, numbers: Indices) -> Indices:
        """What stands at the places, after the numbers took those that were free."""
        free = (self._table.take(places) < 0).nonzero()[0]
        self._table[places.take(free)] = numbers.take(free)
        return self._table.take(places).astype(np.int64)

    def _take(self, places: Indices, numbers: Indices) -> Indices:
        """The same of an empty table."""
        self._table[places] = numbers
        return self._table.take(places).astype(np.int64)

    def _keep(self, keys: Indices, places: Indices) -> None:
        """Note new keys and where they stand."""
        known = len(self.keys)
        self._table[places] = np.arange(known, known + len(keys))
        self.keys = np.concatenate([self.keys, keys]) if known else keys
        self._places = np.concatenate([self._places, places]) if known else places

    def _reserve(self, count: int) -> None:
        """Room for so many keys."""
        bits = max(_LEAST_BITS, int(count * _ROOM - 1).bit_length())
        if 1 << bits > len(self._table):
            keys, self.keys = self.keys, np.zeros(0, np.int64)
            self._resize(bits)
            if len(keys):
                self._places = np.zeros(0, np.int64)
                self.add(keys)

    def _resize(self, bits: int) -> None:
        self._table: NDArray[np.int32] = np.full(1 << bits, -1, np.int32)
        self._shift, self._mask = 63 - bits, (1 << bits) - 1
