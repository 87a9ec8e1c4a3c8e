"""The best word sequences of a lattice, each once, best first."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from hadpsgd.decoding.lattice import Lattice, Scaling
from hadpsgd.decoding.word_lattice import WordArc, WordLattice, word_lattice


@dataclass(frozen=True)
class Hypothesis:
    """Words with their cost (scaled), graph and acoustic costs (not scaled)."""

    words: tuple[int, ...]
    cost: float
    graph: float
    acoustic: float


def nbest(lattice: Lattice, scaling: Scaling, count: int, beam: float = 20.0) -> list[Hypothesis]:
    """Up to `count` different word sequences within `beam` of the best, best first."""
    if lattice.num_states == 0:
        return []
    found = _search(word_lattice(lattice, scaling, beam), scaling)
    return [hypothesis for _, hypothesis in zip(range(count), found, strict=False)]


def _search(words: WordLattice, scaling: Scaling) -> Iterator[Hypothesis]:
    """Best-first search with the exact cost of what is still to come."""
    leaving = words.leaving()
    end = len(words.frames) - 1
    ahead = [float("inf")] * len(words.frames)
    ahead[end] = 0.0
    for node in reversed(range(end)):
        costs = (_cost(arc, scaling) + ahead[arc.target] for arc in leaving[node])
        ahead[node] = min(costs, default=float("inf"))
    counter = 0
    queue: list[tuple[float, int, int, float, tuple[int, ...], float, float]] = [
        (ahead[0], counter, 0, 0.0, (), 0.0, 0.0)
    ]
    # a node reached twice with the same words: the second way is no better, and no new words
    seen: set[tuple[int, tuple[int, ...]]] = set()
    while queue:
        _, _, node, cost, said, graph, acoustic = heapq.heappop(queue)
        if (node, said) in seen:
            continue
        seen.add((node, said))
        if node == end:
            yield Hypothesis(said, cost, graph, acoustic)
            continue
        for arc in leaving[node]:
            counter += 1
            new = cost + _cost(arc, scaling)
            words_now = (*said, arc.word) if arc.word else said
            heapq.heappush(
                queue,
                (
                    new + ahead[arc.target],
                    counter,
                    arc.target,
                    new,
                    words_now,
                    graph + arc.graph,
                    acoustic + arc.acoustic,
                ),
            )


def _cost(arc: WordArc, scaling: Scaling) -> float:
    penalty = scaling.word_penalty if arc.word and arc.word not in scaling.inside else 0.0
    return arc.graph + scaling.acoustic_scale * arc.acoustic + penalty
