"""A grammar of known words whose arcs of new words lead through one of how words are spelled.

What `graph.spelling.with_spelling` makes of two FSTs, asked state by state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hadpsgd.decoding.ngram_states import Arc, States
from hadpsgd.errors import UserError


@dataclass(kw_only=True)
class SpelledStates:
    """States of the words come first, then those inside a spelled word.

    words, spelling: the two grammars. begin, end: words that stand around a spelled one.
    cost: added to each. scale: of the costs inside it.

    Raises:
        UserError: the grammar expects no new words.
    """

    words: States
    spelling: States
    begin: int
    end: int
    cost: float
    scale: float

    def __post_init__(self) -> None:
        self.start, self.size = self.words.start, self.words.size + self.spelling.size
        new = self.words.step(0, word=self.begin)  # 0: no history
        if new is None:
            raise UserError("the language model expects no new words", fix="Make the graph again")
        self._after = new[1]

    def step(self, state: int, *, word: int) -> Arc | None:
        if state < self.words.size:
            found = self.words.step(state, word=word)
            if found is None or word != self.begin:
                return found
            return found[0] + self.cost, self.words.size + self.spelling.start
        inside = state - self.words.size
        if word != self.end:
            return self._inside(self.spelling.step(inside, word=word))
        ending = self.spelling.final(inside)
        return (self.scale * ending, self._after) if ending < math.inf else None

    def back_off(self, state: int) -> Arc | None:
        if state < self.words.size:
            return self.words.back_off(state)
        return self._inside(self.spelling.back_off(state - self.words.size))

    def final(self, state: int) -> float:
        return self.words.final(state) if state < self.words.size else math.inf

    def _inside(self, arc: Arc | None) -> Arc | None:
        return arc and (self.scale * arc[0], self.words.size + arc[1])
