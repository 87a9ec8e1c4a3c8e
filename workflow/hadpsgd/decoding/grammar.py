"""A grammar G asked word by word: the best of all its paths, as a decoding graph takes them.

In G a word may be reached by its n-gram or by backing off, whichever is cheaper, so a graph's
cost of words can be below the model's. A state here is the set of G's states that the words may
lead to, with what each costs more than the best (determinisation on demand, tropical).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hadpsgd.decoding.ngram_states import States
from hadpsgd.errors import UserError

State = tuple[tuple[int, float], ...]
"""(state of G, cost above the best), sorted."""

KNOWN = 1 << 16
"""Most steps that are remembered: some 100 MiB. Lattices ask the same ones again soon."""
_DIGITS = 6  # of costs that tell states apart


@dataclass
class Grammar:
    """G determinised on demand."""

    states: States
    _known: dict[tuple[State, int], tuple[float, State]] = field(default_factory=dict)

    def start(self) -> tuple[float, State]:
        """The state before the first word, and its cost: backing off may cost less than nothing."""
        return self._closed({self.states.start: 0.0})

    def step(self, state: State, word: int) -> tuple[float, State]:
        """The cost of a word and the state after it.

        Raises:
            UserError: the grammar lacks the word.
        """
        key = (state, word)
        if key not in self._known:
            reached: dict[int, float] = {}
            for source, residual in state:
                arc = self.states.step(source, word=word)
                if arc is not None:
                    cost, target = residual + arc[0], arc[1]
                    reached[target] = min(cost, reached.get(target, math.inf))
            if not reached:
                raise UserError(
                    f"the full language model lacks word {word} of the first pass",
                    fix="Prune the first pass from the full model",
                )
            if len(self._known) >= KNOWN:
                self._known.clear()
            self._known[key] = self._closed(reached)
        return self._known[key]

    def final(self, state: State) -> float:
        """The cost of ending; inf where no sentence ends here."""
        return min(residual + self.states.final(source) for source, residual in state)

    def _closed(self, reached: dict[int, float]) -> tuple[float, State]:
        """The least cost, and the state: with all that backing off leads to."""
        waiting = sorted(reached)
        while waiting:
            source = waiting.pop()
            arc = self.states.back_off(source)
            if arc is None:
                continue
            cost, target = reached[source] + arc[0], arc[1]
            if cost < reached.get(target, math.inf):
                reached[target] = cost
                waiting.append(target)
        least = min(reached.values())
        return least, tuple(sorted((s, round(c - least, _DIGITS)) for s, c in reached.items()))
