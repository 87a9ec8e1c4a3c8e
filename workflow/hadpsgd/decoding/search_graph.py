"""HCLG laid out for a search over arrays: emitting and empty arcs apart, by state."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hadpsgd.graph.arrays import Arrays

Indices = NDArray[np.int64]
Costs = NDArray[np.float64]

# ways along empty arcs that are listed: so many for each arc, and of so many arcs
_WAYS, _STEPS = 4, 16


@dataclass(frozen=True)
class Leaving:
    """What leaves states, sorted by state.

    first: int32 [states + 1], where a state's begin; then their number. next: int32, the state
    that each leads to. cost: float32, of ways float64.
    """

    first: NDArray[np.int32]
    next: NDArray[np.int32]
    cost: NDArray[np.floating]

    def some(self, states: NDArray[np.integer]) -> tuple[Indices, NDArray[np.int32]]:
        """Which of the states anything leaves, by index, and how many leave each of these."""
        counts = self.first.take(states + 1)
        counts -= self.first.take(states)
        chosen = (counts > 0).nonzero()[0]
        return chosen, counts.take(chosen)

    def each(
        self, states: NDArray[np.integer], counts: NDArray[np.int32]
    ) -> tuple[Indices, Indices]:
        """Of all that leave states, so many each, state by state: index of the state among
        `states`, and index of what leaves it."""
        owner = np.arange(len(states)).repeat(counts)
        shift = self.first.take(states)
        shift += counts
        found = (shift - counts.cumsum()).take(owner)
        found += np.arange(len(owner))
        return owner, found


@dataclass(frozen=True)
class Arcs(Leaving):
    """Arcs by the state that they leave.

    label: int32 [arcs], transition-id (0 for empty arcs). word: int32.
    """

    label: NDArray[np.int32]
    word: NDArray[np.int32]

    @classmethod
    def of(cls, graph: Arrays, chosen: NDArray[np.bool_]) -> Arcs:
        """The chosen arcs of a graph."""
        arcs = graph.arcs[chosen]
        return cls(
            _firsts(graph.sources[chosen], len(graph.final)),
            arcs["next"].copy(),
            arcs["weight"].copy(),
            arcs["ilabel"].copy(),
            arcs["olabel"].copy(),
        )


@dataclass(frozen=True)
class Ways(Leaving):
    """Ways along empty arcs, by the state that they leave: one arc, two and more.

    peak: float32, the most that a way costs up to any of its states.
    """

    peak: NDArray[np.floating]

    @classmethod
    def of(cls, empty: Arcs) -> Ways:
        """All ways; of graphs where they are very many or lead round, the shorter ones."""
        source = np.arange(len(empty.first) - 1, dtype=np.int32).repeat(np.diff(empty.first))
        # exact: a sum of single ones would differ by the order in which it is taken
        parts = [(source, empty.next, empty.cost.astype(np.float64), empty.cost)]
        total = len(source)
        for _ in range(_STEPS):
            source, end, cost, peak = parts[-1]
            some, counts = empty.some(end)
            total += int(counts.sum())
            if not len(some) or total > _WAYS * len(empty.next):
                break
            way, arc = empty.each(end.take(some), counts)
            way = some.take(way)
            longer = cost.take(way) + empty.cost.take(arc)
            most = np.maximum(peak.take(way), longer.astype(np.float32))
            parts.append((source.take(way), empty.next.take(arc), longer, most))
        source, end, cost, peak = (np.concatenate([part[i] for part in parts]) for i in range(4))
        first = _firsts(source, len(empty.first) - 1)
        order = source.argsort(kind="stable")
        return cls(first, end.take(order), cost.take(order), peak.take(order))


def _firsts(sources: NDArray[np.integer], num_states: int) -> NDArray[np.int32]:
    counts = np.bincount(sources, minlength=num_states)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)


@dataclass(frozen=True)
class SearchGraph:
    """A graph for searching; final: float32 [states], inf where no utterance may end."""

    start: int
    final: NDArray[np.float32]
    emitting: Arcs
    empty: Arcs
    ways: Ways

    @classmethod
    def of(cls, graph: Arrays) -> SearchGraph:
        """Lay out a graph."""
        emits = graph.arcs["ilabel"] > 0
        empty = Arcs.of(graph, ~emits)
        emitting = Arcs.of(graph, emits)
        return cls(graph.start, graph.final, emitting, empty, Ways.of(empty))

    @property
    def num_states(self) -> int:
        """Number of states."""
        return len(self.final)
