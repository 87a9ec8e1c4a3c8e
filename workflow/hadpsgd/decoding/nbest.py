"""The best word sequences of a lattice, each once, best first."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from hadpsgd.decoding.lattice import Lattice, Scaling
from hadpsgd.decoding.word_lattice import WordLattice, word_lattice

_SHARES = (1, 2, 4, 8)  # of the beam, tried from the narrowest on


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """Words with their cost (scaled), graph and acoustic costs (not scaled)."""

    words: tuple[int, ...]
    cost: float
    graph: float
    acoustic: float


def nbest(
    lattice: Lattice, scaling: Scaling, *, count: int, beam: float = 20.0
) -> list[Hypothesis]:
    """Up to `count` different word sequences within `beam` of the best, best first."""
    if lattice.num_states == 0:
        return []
    found: list[Hypothesis] = []
    # a wide beam of a poor lattice costs a lot: what a narrower one holds whole needs no more
    for part in sorted({beam / share for share in _SHARES}):
        found = list(islice(_search(word_lattice(lattice, scaling, part)), count))
        if len(found) == count and found[-1].cost <= found[0].cost + part:
            break
    return found


def _search(words: WordLattice) -> Iterator[Hypothesis]:
    """Best-first search with the exact cost of what is still to come."""
    leaving = words.leaving()
    end = words.nodes - 1
    ahead = [float("inf")] * words.nodes
    ahead[end] = 0.0
    for node in reversed(range(end)):
        costs = (arc.cost + ahead[arc.target] for arc in leaving[node])
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
            yield Hypothesis(words=said, cost=cost, graph=graph, acoustic=acoustic)
            continue
        for arc in leaving[node]:
            counter += 1
            new = cost + arc.cost
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
