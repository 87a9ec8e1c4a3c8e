"""HCLG laid out for a search over arrays: emitting and empty arcs apart, by state."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hadpsgd.graph.arrays import Arrays

Indices = NDArray[np.int64]
Costs = NDArray[np.float64]


@dataclass(frozen=True)
class Arcs:
    """Arcs sorted by the state that they leave.

    first, count: int64 [states], where a state's arcs begin and how many they are.
    label: int32 [arcs], transition-id (0 for empty arcs). word: int32. cost: float32.
    next: int32, the state that they lead to.
    """

    first: Indices
    count: Indices
    label: NDArray[np.int32]
    word: NDArray[np.int32]
    cost: NDArray[np.float32]
    next: NDArray[np.int32]

    @classmethod
    def of(cls, graph: Arrays, chosen: NDArray[np.bool_]) -> Arcs:
        """The chosen arcs of a graph."""
        count = np.bincount(graph.sources[chosen], minlength=len(graph.final))
        arcs = graph.arcs[chosen]
        return cls(
            np.cumsum(count) - count,
            count,
            arcs["ilabel"].copy(),
            arcs["olabel"].copy(),
            arcs["weight"].copy(),
            arcs["next"].copy(),
        )

    def leaving(self, states: Indices) -> tuple[Indices, Indices]:
        """How many arcs leave each state, and all these arcs, state by state."""
        counts = self.count.take(states)
        ends: Indices = counts.cumsum()
        total = int(ends[-1]) if len(ends) else 0
        arcs: Indices = (self.first.take(states) - (ends - counts)).repeat(counts)
        arcs += np.arange(total)
        return counts, arcs


@dataclass(frozen=True)
class SearchGraph:
    """A graph for searching; final: float64 [states], inf where no utterance may end."""

    start: int
    final: Costs
    emitting: Arcs
    empty: Arcs

    @classmethod
    def of(cls, graph: Arrays) -> SearchGraph:
        """Lay out a graph."""
        emits = graph.arcs["ilabel"] > 0
        final = graph.final.astype(np.float64)
        return cls(graph.start, final, Arcs.of(graph, emits), Arcs.of(graph, ~emits))

    @property
    def num_states(self) -> int:
        """Number of states."""
        return len(self.final)
