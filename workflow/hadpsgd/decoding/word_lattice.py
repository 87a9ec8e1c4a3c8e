"""Lattices of words: from state-level lattices, each pair of word ends by its best path."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
    alive = scores.through <= limit
    forward, backward = scores.forward.tolist(), scores.backward.tolist()
    final = _finals(lattice, scores)
    leaving = _leaving(lattice, scores, alive)
    # for each state: from which nodes, and at what costs
    reached: list[dict[int, _Costs]] = [{} for _ in range(lattice.num_states)]
    reached[0][0] = 0.0, 0.0, 0.0
    words: _Words = {}
    for state, origins in enumerate(reached):
        if not origins:
            continue
        for word, target, cost, graph, acoustic in leaving[state]:
            ahead = cost + backward[target]
            there = reached[target]
            for origin, before in origins.items():
                if forward[origin] + before[0] + ahead > limit:
                    continue
                value = before[0] + cost
                if word:
                    key = origin, target, word
                    if key not in words or value < words[key][0]:
                        words[key] = value, before[1] + graph, before[2] + acoustic
                        there[target] = 0.0, 0.0, 0.0
                elif origin not in there or value < there[origin][0]:
                    there[origin] = value, before[1] + graph, before[2] + acoustic
        if state in final:
            cost, graph, acoustic = final[state]
            for origin, before in origins.items():
                value = before[0] + cost
                key = origin, lattice.num_states, 0
                if forward[origin] + value <= limit and (key not in words or value < words[key][0]):
                    words[key] = value, before[1] + graph, before[2] + acoustic
        origins.clear()  # they take much memory
    return _numbered(words)


def _leaving(
    lattice: Lattice, scores: ForwardBackward, alive: np.ndarray
) -> list[list[tuple[int, int, float, float, float]]]:
    """Of each state: word, target, costs of the arcs that are alive."""
    rows, costs = lattice.arcs[alive], scores.arcs[alive]
    columns = [rows["olabel"], rows["next"], costs, rows["graph"], rows["acoustic"]]
    table: list[list[tuple[int, int, float, float, float]]] = [
        [] for _ in range(lattice.num_states)
    ]
    arcs = zip(*(column.tolist() for column in columns), strict=True)
    for source, arc in zip(lattice.sources[alive].tolist(), arcs, strict=True):
        table[source].append(arc)
    return table


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
