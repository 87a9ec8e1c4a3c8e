"""The grammar G of a back-off model, asked state by state on the model's arrays.

It has the states, arcs and costs that arpa2fst makes of the ARPA file (Kaldi,
lm/arpa-lm-compiler.cc, with --disambig-symbol), but none of them is held: G as an FST takes ten
times the memory, and has a number of arcs that an FST cannot count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from hadpsgd.lm.arpa import BOS, EOS
from hadpsgd.lm.backoff import NONE, Backoff

Arc = tuple[float, int]
"""Cost in nats, and the state after it."""


class States(Protocol):
    """A grammar: at most one arc of each word leaves a state, and at most one that backs off."""

    start: int
    size: int
    """States are below it."""

    def step(self, state: int, *, word: int) -> Arc | None:
        """By a word."""

    def back_off(self, state: int) -> Arc | None:
        """To a shorter history."""

    def final(self, state: int) -> float:
        """The cost of ending; inf where no sentence ends here."""


class NgramStates:
    """States are histories: 0 none, then the n-grams that are shorter than the longest.

    Args:
        model: with <s> and </s>.
        numbers: of the words that the graph knows.
    """

    def __init__(self, model: Backoff, numbers: Mapping[str, int]) -> None:
        self.model = model
        self._ids = {numbers[word]: i for i, word in enumerate(model.words) if word in numbers}
        self._end = model.ids[EOS]
        sizes = [len(order.keys) for order in model.orders[:-1]]
        self._bases = [0, *np.cumsum([1, *sizes]).tolist()]
        """First state of the histories of each length, 0 first."""
        self.size: int = self._bases[-1]
        self.start: int = self._bases[1] + model.ids[BOS] if sizes else 0

    def step(self, state: int, *, word: int) -> Arc | None:
        length, row = self._history(state)
        last = self._ids.get(word, NONE)
        place = self._place(length + 1, row, last)
        if place == NONE:
            return None
        cost = self._nats(self.model.orders[length].log_prob[place])
        if length + 1 < len(self.model.orders):
            return cost, self._bases[length + 1] + place
        return cost, self._listed([*self._words(length, row), last][1:])

    def back_off(self, state: int) -> Arc | None:
        length, row = self._history(state)
        if not length:
            return None
        cost = self._nats(self.model.orders[length - 1].backoff[row])
        return cost, self._listed(self._words(length, row)[1:])

    def final(self, state: int) -> float:
        length, row = self._history(state)
        place = self._place(length + 1, row, self._end)
        return math.inf if place == NONE else self._nats(self.model.orders[length].log_prob[place])

    @staticmethod
    def _nats(log10: np.floating) -> float:
        return -math.log(10.0) * float(log10)

    def _history(self, state: int) -> tuple[int, int]:
        """Its length, and its row among the n-grams of that length."""
        length = 0
        while length + 1 < len(self._bases) - 1 and state >= self._bases[length + 1]:
            length += 1
        return length, state - self._bases[length]

    def _place(self, length: int, context: int, word: int) -> int:
        """Row of an n-gram by that of its context and its last word; NONE if it is not listed."""
        if length == 1 or word == NONE:
            return word
        keys = self.model.orders[length - 1].keys
        asked = context * len(self.model.words) + word
        place = int(keys.searchsorted(asked))
        return place if place < len(keys) and keys[place] == asked else NONE

    def _words(self, length: int, row: int) -> list[int]:
        """Of a history."""
        if not length:
            return []
        keys = self.model.orders[length - 1].keys[row : row + 1]
        words: list[int] = self.model.spelled(length, keys)[0].tolist()
        return words

    def _listed(self, words: list[int]) -> int:
        """The longest history that these words end in."""
        while words:
            row = words[0]
            for length in range(2, len(words) + 1):
                row = self._place(length, row, words[length - 1]) if row != NONE else NONE
            if row != NONE:
                return self._bases[len(words)] + row
            words = words[1:]
        return 0
