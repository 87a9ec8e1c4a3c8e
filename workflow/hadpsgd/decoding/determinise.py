"""Lattices of words, each word sequence once, by its best path (Kaldi's DeterminizeLatticePruned).

Povey et al., "Generating exact lattices in the WFST framework", ICASSP 2012.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from operator import itemgetter

import numpy as np

from hadpsgd.decoding.between_words import SLACK, Several, Ways, ways
from hadpsgd.decoding.forward_backward import ForwardBackward
from hadpsgd.decoding.lattice import ARC, Lattice, Scaling

_DIGITS = 6  # of costs by which states are told apart: sums in another order differ below
_NARROWER, _LEAST = 0.7, 1e-3  # of the beam; below the least only what costs the same is left
_ELEMENTS, _PER_FRAME = 50_000, 1_000
"""What the states of a lattice may hold together: so much, and so much more a frame."""

_Element = tuple[int, float, float, float, bytes]
"""A state of the source with what its path costs more than the best of them (scaled, graph,
acoustic), and the transition-ids that are not on arcs yet."""
_Link = tuple[int, int, float, float, bytes]
"""Of an arc the word, the target, graph and acoustic cost, transition-ids."""


class _TooLargeError(Exception):
    """The states hold more than is allowed."""


@dataclass
class _State:
    """A set of states of the source that the same words lead to.

    forward: cost of the best path here. common: what the transition-ids of all ways on begin with.
    """

    elements: Sequence[_Element]
    forward: float = np.inf
    common: bytes = b""
    arcs: list[_Link] = field(default_factory=list)


def determinised(
    lattices: Sequence[Lattice], scaling: Scaling, beam: float
) -> list[tuple[Lattice, float]]:
    """Lattices of words that have every word sequence within `beam` of the best path once.

    Its path is the best one of the source under `scaling`, with its costs and transition-ids. No
    two arcs with the same word leave a state; arcs without a word lead to the end alone. Where the
    states would be too many the beam is made narrower; the one that was taken is given back, too.

    Raises:
        ValueError: a lattice of words already.
    """
    if any(lattice.ids is not None for lattice in lattices):
        raise ValueError("a lattice of words already")
    if not lattices:
        return []
    several = Several.of(lattices)
    scores = ForwardBackward(several.lattice, scaling, best=True)
    links = ways(several, scores, beam)
    totals = scores.backward[several.starts].tolist()
    found = []
    for lattice, start, total in zip(lattices, several.starts.tolist(), totals, strict=True):
        most = _ELEMENTS + _PER_FRAME * float(lattice.levels[-1])
        if beam < _LEAST:
            most = np.inf
        subsets = _Subsets(links, start=start, limit=total + beam + SLACK, most=most)
        try:
            found.append((subsets.lattice(), beam))
        except _TooLargeError:
            found += determinised([lattice], scaling, beam * _NARROWER)
    return found


class _Subsets:
    """The subset construction.

    A state is taken when the first of its elements is the first of all that wait: what leads to it
    was taken before, so that its best cost is known, and nothing in the beam is lost.
    """

    def __init__(self, links: Ways, *, start: int, limit: float, most: float) -> None:
        self._limit, self._end = limit, links.lattice.num_states
        self._leaving, self._walked = cache(links.leaving), cache(links.walked)
        self._most, self._held = most, 0
        self.states = [_State([(start, 0.0, 0.0, 0.0, b"")], 0.0)]
        self._numbers: dict[object, int] = {}
        self._waiting = [(start, 0)]
        self._order: list[int] = []

    def lattice(self) -> Lattice:
        """The words of all paths."""
        while self._waiting:
            _, number = heapq.heappop(self._waiting)
            self._order.append(number)
            if self.states[number].elements[0][0] != self._end:
                self._expand(self.states[number])
        return self._assembled()

    def _expand(self, state: _State) -> None:
        following: dict[int, dict[int, tuple[float, int, int]]] = {}
        room = self._limit - state.forward
        for place, (node, before, *_) in enumerate(state.elements):
            for ahead, way, word, target, cost in self._leaving(node):
                if before + ahead > room:
                    break
                there = following.setdefault(word, {})
                value = before + cost
                if target not in there or value < there[target][0]:
                    there[target] = value, place, way
        firsts, lasts = [], []
        for word in sorted(following):
            ends = [self._end_of(state, word_end) for word_end in sorted(following[word].items())]
            _, best, graph, acoustic, _ = min(ends, key=itemgetter(1))
            low, high = min(e[4] for e in ends), max(e[4] for e in ends)
            size = _common(low, high)
            elements = [
                (target, value - best, its_graph - graph, its_acoustic - acoustic, ids[size:])
                for target, value, its_graph, its_acoustic, ids in ends
            ]
            number = self._number(elements)
            reached = self.states[number]
            reached.forward = min(reached.forward, state.forward + best)
            state.arcs.append((word, number, graph, acoustic, low[:size]))
            firsts.append(low)
            lasts.append(high)
        if firsts and state is not self.states[0]:
            low = min(firsts)
            state.common = low[: _common(low, max(lasts))]
        state.elements = state.elements[:1]

    def _end_of(self, state: _State, end: tuple[int, tuple[float, int, int]]) -> _Element:
        """Where a word leads from a state: by one of its elements, and a way."""
        target, (value, place, way) = end
        _, _, graph, acoustic, waiting = state.elements[place]
        its_graph, its_acoustic, ids = self._walked(way)
        return target, value, graph + its_graph, acoustic + its_acoustic, waiting + ids

    def _number(self, elements: list[_Element]) -> int:
        """The state of these elements, which waits for its turn if it is new."""
        key = tuple(
            (node, round(graph, _DIGITS), round(acoustic, _DIGITS), ids)
            for node, _, graph, acoustic, ids in elements
        )
        number = self._numbers.setdefault(key, len(self.states))
        if number == len(self.states):
            self.states.append(_State(elements))
            heapq.heappush(self._waiting, (elements[0][0], number))
            self._held += len(elements)
            if self._held > self._most:
                raise _TooLargeError
        return number

    def _assembled(self) -> Lattice:
        """States in their order, each with the transition-ids of arcs as early as they are sure."""
        alive = {self._order[-1]}  # only the end has no arc; rounding may have cut off others
        for number in reversed(self._order):
            if any(target in alive for _, target, *_ in self.states[number].arcs):
                alive.add(number)
        order = [number for number in self._order if number in alive]
        rank = {number: i for i, number in enumerate(order)}
        rows: list[tuple[int, int, float, float, int]] = []
        ids: list[bytes] = []
        first = [0]
        for number in order:
            state = self.states[number]
            for word, target, graph, acoustic, own in state.arcs:
                if target in alive:
                    own = (own + self.states[target].common)[len(state.common) :]
                    rows.append((len(own) // 4, word, graph, acoustic, rank[target]))
                    ids.append(own)
            first.append(len(rows))
        final = np.full((len(order), 2), np.inf, np.float32)
        final[-1] = 0.0
        labels = np.frombuffer(b"".join(ids), np.int32)
        return Lattice(final, np.array(first, np.int64), np.array(rows, ARC), labels)


def _common(one: bytes, other: bytes) -> int:
    """Bytes of the transition-ids with which both begin."""
    size = min(len(one), len(other))
    if one[:size] == other[:size]:
        return size
    a, b = np.frombuffer(one, np.int32, size // 4), np.frombuffer(other, np.int32, size // 4)
    return 4 * int((a != b).argmax())
