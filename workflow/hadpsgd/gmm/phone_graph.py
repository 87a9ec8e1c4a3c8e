"""Phones that a transcript may be spoken as: the lexicon transducer composed with its words."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import kaldifst

from hadpsgd.errors import UserError

EPSILON = 0


@dataclass(frozen=True)
class PhoneGraph:
    """Phone arcs without epsilons.

    phones[i] is the phone of arc i; after[i] lists (arc, cost) that may follow it; ends[i] is
    the cost of ending after it (inf: it may not). `starts` lists (arc, cost) that may begin.
    Costs are negated natural logarithms of probabilities.
    """

    phones: tuple[int, ...]
    starts: tuple[tuple[int, float], ...]
    after: tuple[tuple[tuple[int, float], ...], ...]
    ends: tuple[float, ...]


class Lexicon:
    """L.fst, its arcs indexed by state and word."""

    def __init__(self, path: Path) -> None:
        """Read L.fst.

        Raises:
            UserError: it is missing or not of type vector.
        """
        if not Path(path).is_file():
            raise UserError("no such file", where=path, fix="`hadpsgd lang` makes it")
        try:
            fst = kaldifst.StdVectorFst.read(str(path))
        except RuntimeError:
            fst = None
        if fst is None:
            raise UserError("not an OpenFst transducer of type vector", where=path)
        self.start = fst.start
        self.arcs: dict[tuple[int, int], list[tuple[int, float, int]]] = defaultdict(list)
        self.final: dict[int, float] = {}
        for state in range(fst.num_states):
            cost = fst.final(state).value
            if math.isfinite(cost):
                self.final[state] = cost
            for arc in kaldifst.ArcIterator(fst, state):
                self.arcs[state, arc.olabel].append((arc.ilabel, arc.weight.value, arc.nextstate))

    def graph(self, words: Sequence[int]) -> PhoneGraph:
        """The phone graph of a transcript (word-ids); empty where the words have no path."""
        nodes: dict[tuple[int, int], int] = {(self.start, 0): 0}
        queue = [(self.start, 0)]
        arcs: list[tuple[int, int, float, int]] = []
        for state, done in queue:  # grows while it is read
            source = nodes[state, done]
            word = words[done] if done < len(words) else EPSILON
            for label in {EPSILON, word}:
                for phone, cost, following in self.arcs.get((state, label), ()):
                    key = (following, done + (label != EPSILON))
                    if key not in nodes:
                        nodes[key] = len(nodes)
                        queue.append(key)
                    arcs.append((source, phone, cost, nodes[key]))
        final = {
            node: self.final[state]
            for (state, done), node in nodes.items()
            if done == len(words) and state in self.final
        }
        return _without_epsilons(len(nodes), arcs, final)


def _without_epsilons(
    size: int, arcs: list[tuple[int, int, float, int]], final: dict[int, float]
) -> PhoneGraph:
    leaving: list[list[int]] = [[] for _ in range(size)]
    silent: list[list[tuple[int, float]]] = [[] for _ in range(size)]
    phones: list[int] = []
    targets: list[int] = []
    costs: list[float] = []
    for source, phone, cost, target in arcs:
        if phone == EPSILON:
            silent[source].append((target, cost))
        else:
            leaving[source].append(len(phones))
            phones.append(phone)
            targets.append(target)
            costs.append(cost)

    def reach(node: int) -> dict[int, float]:
        best = {node: 0.0}
        queue = [node]
        for here in queue:  # grows while it is read
            for target, cost in silent[here]:
                if best[here] + cost < best.get(target, math.inf):
                    best[target] = best[here] + cost
                    queue.append(target)
        return best

    following: list[tuple[tuple[int, float], ...]] = []
    ending: list[float] = []
    for node in range(size):
        closure = reach(node) if silent[node] else {node: 0.0}
        following.append(
            tuple((arc, cost + costs[arc]) for at, cost in closure.items() for arc in leaving[at])
        )
        ending.append(min(cost + final.get(at, math.inf) for at, cost in closure.items()))
    return _trimmed(
        PhoneGraph(
            tuple(phones),
            following[0],
            tuple(following[target] for target in targets),
            tuple(ending[target] for target in targets),
        )
    )


def _trimmed(graph: PhoneGraph) -> PhoneGraph:
    """Without arcs from which no end can be reached."""
    before: list[list[int]] = [[] for _ in graph.phones]
    for arc, following in enumerate(graph.after):
        for target, _ in following:
            before[target].append(arc)
    queue = [arc for arc, cost in enumerate(graph.ends) if math.isfinite(cost)]
    alive = set(queue)
    for arc in queue:  # grows while it is read
        for source in before[arc]:
            if source not in alive:
                alive.add(source)
                queue.append(source)
    if len(alive) == len(graph.phones):
        return graph
    return PhoneGraph(
        graph.phones,
        tuple(step for step in graph.starts if step[0] in alive),
        tuple(tuple(step for step in steps if step[0] in alive) for steps in graph.after),
        graph.ends,
    )
