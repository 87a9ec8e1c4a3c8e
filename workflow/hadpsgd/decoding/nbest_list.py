"""The n-best list of an utterance, with what an n-gram and a neural model say of its words.

The lattices' graph costs have those of the n-gram, so what another model says is added as a change
of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hadpsgd.decoding.lattice import Scaling
from hadpsgd.lm.neural.events import Events, interpolated

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class NbestList:
    """Word sequences of an utterance.

    Args:
        words: numbers of the decoding's words.
        graph, acoustic: float64 [sequences], costs in nats, not scaled; those of the n-gram are in
            the first.
        events: what both models say of words and ends, sentence by sentence. Where an utterance
            ended within a sentence, nothing of its end.
    """

    words: tuple[tuple[int, ...], ...]
    graph: Floats
    acoustic: Floats
    events: Events

    @cached_property
    def _sizes(self) -> Floats:
        return np.array([len(words) for words in self.words], np.float64)

    def changes(self, weight: float) -> Floats:
        """float64 [sequences]: what each costs more, in nats, where the neural model has a weight
        in the interpolation and the n-gram the rest."""
        if weight == 0.0 or not self.words:
            return np.zeros(len(self.words))
        events = self.events
        more = events.ngram - interpolated(events.ngram, events.neural, weight)
        return np.add.reduceat(more, events.first[:-1])

    def costs(self, scaling: Scaling, weight: float) -> Floats:
        """float64 [sequences]: scaled costs."""
        return self.costs_under([(scaling, weight)])[0]

    def costs_under(self, pairs: Sequence[tuple[Scaling, float]]) -> Floats:
        """float64 [pairs, sequences]: scaled costs; words are interpolated once for each weight."""
        changes = {weight: self.changes(weight) for weight in {weight for _, weight in pairs}}
        own = [self.graph + scaling.acoustic_scale * self.acoustic for scaling, _ in pairs]
        return np.stack(
            [
                cost + scaling.word_penalty * self._sizes + changes[weight]
                for cost, (scaling, weight) in zip(own, pairs, strict=True)
            ]
        )

    def best(self, scaling: Scaling, weight: float) -> tuple[int, ...]:
        """The words that cost least; none of an empty list."""
        return self.words[int(self.costs(scaling, weight).argmin())] if self.words else ()
