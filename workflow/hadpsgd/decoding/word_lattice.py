"""Lattices of words: from state-level lattices, each pair of word ends by its best path."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hadpsgd.decoding.forward_backward import ForwardBackward, frames_before
from hadpsgd.decoding.lattice import Lattice, Scaling


@dataclass(frozen=True, slots=True)
class WordArc:
    """A word between two nodes; word 0 is the way to the end after the last word.

    chosen: its arcs in the state-level lattice. graph, acoustic: their costs, not scaled.
    """

    source: int
    target: int
    word: int
    graph: float
    acoustic: float
    chosen: tuple[int, ...]


@dataclass(frozen=True)
class WordLattice:
    """Nodes 0 (start) .. last (end); arcs sorted by source, leading to higher nodes.

    frames: of every node, the frames consumed before it.
    """

    frames: list[int]
    arcs: list[WordArc]

    def leaving(self) -> list[list[WordArc]]:
        """The arcs that leave each node."""
        table: list[list[WordArc]] = [[] for _ in self.frames]
        for arc in self.arcs:
            table[arc.source].append(arc)
        return table


def word_lattice(lattice: Lattice, scaling: Scaling, beam: float = np.inf) -> WordLattice:
    """All word sequences of a lattice within `beam` of the best path, with their best alignments.

    A node is a state after a word label. Two paths with the same words between the same two
    nodes are one: the better one, under `scaling`.
    """
    scores = ForwardBackward(lattice, scaling, best=True)
    limit = scores.total + beam + 1e-6
    alive = np.flatnonzero(scores.through <= limit)
    forward, backward = scores.forward.tolist(), scores.backward.tolist()
    costs = scores.arcs
    leaving: list[list[tuple[int, int, int, float]]] = [[] for _ in range(lattice.num_states)]
    for arc in alive.tolist():
        row = lattice.arcs[arc]
        source = int(lattice.sources[arc])
        leaving[source].append((arc, int(row["olabel"]), int(row["next"]), float(costs[arc])))
    # for each state: from which node, at what cost, by which arc
    reached: list[dict[int, tuple[float, int]]] = [{} for _ in range(lattice.num_states)]
    reached[0][0] = (0.0, -1)
    words: dict[tuple[int, int, int], tuple[float, int]] = {}
    final = scores.final.tolist()
    for state, origins in enumerate(reached):
        if not origins:
            continue
        for arc, word, target, cost in leaving[state]:
            ahead = cost + backward[target]
            for origin, (before, _) in origins.items():
                if forward[origin] + before + ahead > limit:
                    continue
                value = before + cost
                if word:
                    key = (origin, target, word)
                    if key not in words or value < words[key][0]:
                        words[key] = (value, arc)
                        reached[target][target] = (0.0, -1)
                else:
                    known = reached[target].get(origin)
                    if known is None or value < known[0]:
                        reached[target][origin] = (value, arc)
        if final[state] < np.inf:
            for origin, (before, _) in origins.items():
                if forward[origin] + before + final[state] <= limit:
                    key = (origin, lattice.num_states, 0)
                    value = before + final[state]
                    if key not in words or value < words[key][0]:
                        words[key] = (value, -state - 1)
    return _collect(lattice, words, reached)


def _collect(
    lattice: Lattice,
    words: dict[tuple[int, int, int], tuple[float, int]],
    reached: list[dict[int, tuple[float, int]]],
) -> WordLattice:
    sources = lattice.sources
    frames = frames_before(lattice)
    states = sorted({0} | {origin for origin, _, _ in words} | {to for _, to, _ in words})
    number = {state: i for i, state in enumerate(states)}
    arcs = []
    for (origin, target, word), (_, arc) in sorted(words.items()):
        chosen: list[int] = []
        end_graph = end_acoustic = 0.0
        state = -arc - 1
        if arc >= 0:
            chosen.append(arc)
            state = int(sources[arc])
        else:
            end_graph, end_acoustic = map(float, lattice.final[state])
        while state != origin or reached[state][origin][1] >= 0:
            step = reached[state][origin][1]
            chosen.append(step)
            state = int(sources[step])
        rows = lattice.arcs[chosen]
        graph = end_graph + float(rows["graph"].sum(dtype=np.float64))
        acoustic = end_acoustic + float(rows["acoustic"].sum(dtype=np.float64))
        path = tuple(chosen[::-1])
        arcs.append(WordArc(number[origin], number[target], word, graph, acoustic, path))
    ends = [int(frames[s]) if s < lattice.num_states else int(frames.max()) for s in states]
    return WordLattice(ends, arcs)
