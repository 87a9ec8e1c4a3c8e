"""Lattices of words: from state-level lattices, each pair of word ends by its best path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from hadpsgd.decoding.forward_backward import ForwardBackward
from hadpsgd.decoding.lattice import Lattice, Scaling


@dataclass(frozen=True, slots=True, kw_only=True)
class WordArc:
    """A word between two nodes; word 0 is the way to the end after the last word.

    cost: scaled, with the word penalty. graph, acoustic: not scaled.
    """

    source: int
    target: int
    word: int
    cost: float
    graph: float
    acoustic: float


@dataclass(frozen=True)
class WordLattice:
    """Nodes 0 (start) .. nodes - 1 (end); arcs sorted by source, leading to higher nodes."""

    nodes: int
    arcs: list[WordArc]

    def leaving(self) -> list[list[WordArc]]:
        """The arcs that leave each node."""
        table: list[list[WordArc]] = [[] for _ in range(self.nodes)]
        for arc in self.arcs:
            table[arc.source].append(arc)
        return table


_Costs = tuple[float, float, float]  # as a WordArc has them
_Words = dict[tuple[int, int, int], _Costs]  # by the states at both ends, and the word


def word_lattice(lattice: Lattice, scaling: Scaling, beam: float = np.inf) -> WordLattice:
    """All word sequences of a lattice within `beam` of the best path, with their best alignments.

    A node is a state after a word label. Two paths with the same words between the same two
    nodes are one: the better one, under `scaling`.
    """
    scores = ForwardBackward(lattice, scaling, best=True)
    limit = scores.total + beam + 1e-6
    final = _finals(lattice, scores)
    # for each state: from which nodes, and at what costs; lists of all states would be large
    reached: dict[int, dict[int, _Costs]] = {0: {0: (0.0, 0.0, 0.0)}}
    forward = {0: 0.0}  # of nodes
    words: _Words = {}
    for state, arcs in _leaving(lattice, scores, scores.through <= limit, sorted(final)):
        origins = reached.pop(state, None)
        if not origins:
            continue
        for word, target, cost, graph, acoustic, ahead in arcs:
            there = reached.setdefault(target, {})
            for origin, before in origins.items():
                if forward[origin] + before[0] + ahead > limit:
                    continue
                value = before[0] + cost
                if word:
                    key = origin, target, word
                    if key not in words or value < words[key][0]:
                        words[key] = value, before[1] + graph, before[2] + acoustic
                        there[target] = 0.0, 0.0, 0.0
                        forward[target] = float(scores.forward[target])
                elif origin not in there or value < there[origin][0]:
                    there[origin] = value, before[1] + graph, before[2] + acoustic
        if state in final:
            cost, graph, acoustic = final[state]
            for origin, before in origins.items():
                value = before[0] + cost
                key = origin, lattice.num_states, 0
                if forward[origin] + value <= limit and (key not in words or value < words[key][0]):
                    words[key] = value, before[1] + graph, before[2] + acoustic
    return _numbered(words)


_CHUNK = 1 << 16  # arcs
_Arc = tuple[int, int, float, float, float, float]
"""Word, target, costs; and the cost from its beginning to the end of the lattice."""


def _leaving(
    lattice: Lattice, scores: ForwardBackward, alive: NDArray[np.bool_], final: list[int]
) -> Iterator[tuple[int, list[_Arc]]]:
    """Yield each state that arcs leave which are alive, with these; and the final ones."""
    ends = iter([*final, lattice.num_states])
    end = next(ends)
    for source, arcs in groupby(_arcs(lattice, scores, alive.nonzero()[0]), itemgetter(0)):
        while end < source:
            yield end, []
            end = next(ends)
        if end == source:
            end = next(ends)
        yield source, [arc for _, arc in arcs]
    while end < lattice.num_states:
        yield end, []
        end = next(ends)


def _arcs(
    lattice: Lattice, scores: ForwardBackward, chosen: NDArray[np.int64]
) -> Iterator[tuple[int, _Arc]]:
    """Of each arc the state that it leaves, and what else is asked of it."""
    for low in range(0, len(chosen), _CHUNK):
        some = chosen[low : low + _CHUNK]
        rows, costs = lattice.arcs[some], scores.arcs[some]
        ahead = costs + scores.backward[rows["next"]]
        columns = [rows["olabel"], rows["next"], costs, rows["graph"], rows["acoustic"], ahead]
        arcs = zip(*(column.tolist() for column in columns), strict=True)
        yield from zip(lattice.sources[some].tolist(), arcs, strict=True)


def _finals(lattice: Lattice, scores: ForwardBackward) -> dict[int, _Costs]:
    """Costs of ending at each state that is final."""
    states = np.flatnonzero(scores.final < np.inf)
    rows = np.column_stack([scores.final[states], lattice.final[states]])
    return {
        state: (cost, graph, acoustic)
        for state, (cost, graph, acoustic) in zip(states.tolist(), rows.tolist(), strict=True)
    }


def _numbered(words: _Words) -> WordLattice:
    """Arcs between nodes, numbered in the order of their states."""
    states = sorted({0} | {origin for origin, *_ in words} | {target for _, target, _ in words})
    number = {state: i for i, state in enumerate(states)}
    arcs = [
        WordArc(
            source=number[origin],
            target=number[target],
            word=word,
            cost=cost,
            graph=graph,
            acoustic=acoustic,
        )
        for (origin, target, word), (cost, graph, acoustic) in sorted(words.items())
    ]
    return WordLattice(len(states), arcs)
