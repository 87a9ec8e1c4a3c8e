"""The best word sequences of a lattice, each once, best first."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from hadpsgd.decoding.lattice import Lattice, Scaling
from hadpsgd.decoding.word_lattice import WordLattice, word_lattice

_DIGITS = 6  # of costs that tell hypotheses apart: sums in another order differ below
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
    # words said so far have a number: with the word before they are those of another number
    numbers: dict[tuple[int, int], int] = {}
    said_before: list[tuple[int, int]] = [(0, 0)]
    # of equals the one that has come furthest: otherwise all ways of equal cost are tried at once
    queue: list[tuple[float, int, int, float, int, float, float]] = [
        (round(ahead[0], _DIGITS), 0, counter, 0.0, 0, 0.0, 0.0)
    ]
    # a node reached twice with the same words: the second way is no better, and no new words
    seen: set[tuple[int, int]] = set()
    while queue:
        _, further, _, cost, said, graph, acoustic = heapq.heappop(queue)
        node = -further
        if (node, said) in seen:
            continue
        seen.add((node, said))
        if node == end:
            said_words = _words(said_before, said)
            yield Hypothesis(words=said_words, cost=cost, graph=graph, acoustic=acoustic)
            continue
        for arc in leaving[node]:
            counter += 1
            new = cost + arc.cost
            now = said
            if arc.word:
                key = said, arc.word
                now = numbers.setdefault(key, len(said_before))
                if now == len(said_before):
                    said_before.append(key)
            heapq.heappush(
                queue,
                (
                    round(new + ahead[arc.target], _DIGITS),
                    -arc.target,
                    counter,
                    new,
                    now,
                    graph + arc.graph,
                    acoustic + arc.acoustic,
                ),
            )


def _words(said_before: list[tuple[int, int]], said: int) -> tuple[int, ...]:
    """The words of a number."""
    words = []
    while said:
        said, word = said_before[said]
        words.append(word)
    return tuple(reversed(words))
