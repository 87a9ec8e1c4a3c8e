"""The best path of a small graph, nothing pruned: all states at every frame, as arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from hadpsgd.decoding.lattice import ARC, Lattice
from hadpsgd.decoding.scores import Matrix
from hadpsgd.decoding.search_graph import Costs, Indices
from hadpsgd.errors import UserError
from hadpsgd.graph.arrays import Arrays

_KEPT = 1 << 25  # bytes of costs that are kept to trace paths back, where that is enough
_DEEPEST = 500  # arcs without labels in a row; where there are more, they lead round


@dataclass(frozen=True)
class _Into:
    """Arcs by the state that they lead to.

    state: int64 [states], those that any leads to, in order. first: int64 [states + 1], the first
    arc of each, then their number. arc: index in the graph. source: state left. cost: float64.
    """

    state: Indices
    first: Indices
    arc: Indices
    source: Indices
    cost: Costs

    @classmethod
    def of(cls, graph: Arrays, arcs: Indices) -> _Into:
        """Some of the arcs of a graph."""
        targets = graph.arcs["next"][arcs]
        arcs = arcs.take(targets.argsort(kind="stable"))
        state, first = np.unique(graph.arcs["next"][arcs], return_index=True)
        cost = graph.arcs["weight"][arcs].astype(np.float64)
        return cls(
            state.astype(np.int64), np.append(first, len(arcs)), arcs, graph.sources[arcs], cost
        )

    def least(self, through: Costs) -> Costs:
        """Of costs of all arcs the least into each state."""
        return np.minimum.reduceat(through, self.first[:-1])

    def into(self, state: int) -> slice:
        """The arcs into a state."""
        at = int(self.state.searchsorted(state))
        if at == len(self.state) or self.state[at] != state:
            return slice(0, 0)
        return slice(int(self.first[at]), int(self.first[at + 1]))


class Exhaustive:
    """A graph with the scores of an utterance.

    Args:
        graph: the graph.
        pdf: int [transition-ids + 1], the column of scores of each.
        scores: float32 [frames, columns], log-likelihoods, not scaled; at least one frame.
        acoustic_scale: of the scores.

    Raises:
        UserError: arcs without labels lead round, at less than no cost.
    """

    def __init__(
        self, graph: Arrays, pdf: NDArray[np.integer], scores: Matrix, acoustic_scale: float
    ) -> None:
        self.graph, self.scores, self._pdf = graph, scores, pdf
        self._scale = np.float32(-acoustic_scale)
        emits = graph.arcs["ilabel"] > 0
        self._spoken = _Into.of(graph, emits.nonzero()[0])
        self._columns = pdf[graph.arcs["ilabel"][self._spoken.arc]].astype(np.int64)
        self._silent, self._round = _by_depth(graph, (~emits).nonzero()[0])

    def best(self) -> Lattice | None:
        """A lattice of the best path alone; None where none reaches the end."""
        count, states = len(self.scores), len(self.graph.final)
        length = max(isqrt(count) + 1, _KEPT // (8 * states))
        cost, begun = self._start(), list[Costs]()  # costs at the first of every so many frames
        for begin in range(0, count, length):
            begun.append(cost)
            rows = list(self._run(begin, min(begin + length, count), cost))
            cost = rows[-1]
        ends = cost + self.graph.final
        state = last = int(ends.argmin())
        if not np.isfinite(ends[last]):
            return None
        found: list[tuple[int, int]] = []
        for number in reversed(range(len(begun))):
            begin = number * length
            if number < len(begun) - 1:
                rows = list(self._run(begin, begin + length, begun[number]))
            for at in range(len(rows) - 1, 0, -1):
                state = self._back(begin + at, rows[at - 1], rows[at], state, found)
        while state != self.graph.start:
            state = self._silent_back(begun[0], state, found)
        return self._lattice(found[::-1], last)

    def _start(self) -> Costs:
        cost = np.full(len(self.graph.final), np.inf)
        cost[self.graph.start] = 0.0
        return self._closed(cost)

    def _run(self, begin: int, end: int, cost: Costs) -> Iterator[Costs]:
        """Costs of all states at frames from `begin`, where they are `cost`, to `end`."""
        yield cost
        for time in range(begin, end):
            spoken = self._spoken
            through = cost.take(spoken.source)
            through += spoken.cost
            through += (self.scores[time] * self._scale).take(self._columns)
            cost = np.full(len(cost), np.inf)
            if len(through):
                cost[spoken.state] = spoken.least(through)
            cost = self._closed(cost)
            yield cost

    def _closed(self, cost: Costs) -> Costs:
        for _ in cost:
            before = cost.copy() if self._round else cost
            for some in self._silent:
                through = cost.take(some.source)
                through += some.cost
                cost[some.state] = np.minimum(cost.take(some.state), some.least(through))
            if np.array_equal(before, cost):
                return cost
        raise _leads_round()

    def _back(
        self, time: int, before: Costs, now: Costs, state: int, found: list[tuple[int, int]]
    ) -> int:
        """Trace the best path from a state at a frame to the frame before it, noting arcs and the
        frames that they consume (-1: none); the state there."""
        spoken = self._spoken
        acoustic = self.scores[time - 1] * self._scale
        for _ in now:
            arcs = spoken.into(state)
            through = before.take(spoken.source[arcs])
            through += spoken.cost[arcs]
            through += acoustic.take(self._columns[arcs])
            hits = (through == now[state]).nonzero()[0]
            if len(hits):
                arc = arcs.start + int(hits[0])
                found.append((int(spoken.arc[arc]), time - 1))
                return int(spoken.source[arc])
            state = self._silent_back(now, state, found)
        raise _leads_round()

    def _silent_back(self, now: Costs, state: int, found: list[tuple[int, int]]) -> int:
        """The state before, along an arc that consumes nothing."""
        for some in self._silent:
            arcs = some.into(state)
            through = now.take(some.source[arcs]) + some.cost[arcs]
            hits = (through == now[state]).nonzero()[0]
            if len(hits):
                arc = arcs.start + int(hits[0])
                found.append((int(some.arc[arc]), -1))
                return int(some.source[arc])
        raise AssertionError("a cost that no arc explains")

    def _lattice(self, found: list[tuple[int, int]], last: int) -> Lattice:
        """The path along these arcs, and the frames that they consume."""
        taken, times = np.array(found, np.int64).T
        arcs = self.graph.arcs[taken]
        rows = np.zeros(len(arcs), ARC)
        rows["ilabel"], rows["olabel"], rows["graph"] = (
            arcs["ilabel"],
            arcs["olabel"],
            arcs["weight"],
        )
        spoken = times >= 0
        columns = self._pdf[arcs["ilabel"][spoken]]
        rows["acoustic"][spoken] = -self.scores[times[spoken], columns]
        rows["next"] = np.arange(1, len(arcs) + 1)
        final = np.full((len(arcs) + 1, 2), np.inf, np.float32)
        final[-1] = self.graph.final[last], 0.0
        return Lattice(final, np.append(np.arange(len(arcs) + 1), len(arcs)), rows)


def _leads_round() -> UserError:
    return UserError(
        "the graph has a cycle without speech that costs less than nothing",
        fix="Look for words without phones",
    )


def _by_depth(graph: Arrays, arcs: Indices) -> tuple[list[_Into], bool]:
    """Arcs, in an order in which all into a state come before those that leave it; and whether
    there is no such order, as they lead round."""
    source, target = graph.sources[arcs], graph.arcs["next"][arcs]
    depth = np.zeros(len(graph.final), np.int64)
    for _ in range(_DEEPEST):
        deeper = depth.take(source) + 1
        low = (deeper > depth.take(target)).nonzero()[0]
        if not len(low):
            break
        np.maximum.at(depth, target.take(low), deeper.take(low))
    depths = depth.take(target)
    levels = [_Into.of(graph, arcs[depths == each]) for each in np.unique(depths)]
    return levels, bool(len(arcs)) and bool(len(low))
