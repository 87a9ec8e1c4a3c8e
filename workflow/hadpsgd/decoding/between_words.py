"""The best way from each word of lattices to each word that may follow it."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hadpsgd.decoding.forward_backward import Floats, ForwardBackward
from hadpsgd.decoding.lattice import ARC, Lattice
from hadpsgd.distinct import distinct

SLACK = 1e-6  # rounding of sums taken in another order
_WALKED = ("ilabel", "graph", "acoustic")
_Ints = NDArray[np.int64]
_Leaving = tuple[float, int, int, int, float]


@dataclass(frozen=True, kw_only=True)
class Ways:
    """All ways. No two have source, word and target alike."""

    lattice: Lattice
    pairs: _Pairs
    columns: tuple[NDArray[Any], ...]
    """What `leaving` says of each, by the sources, then from the best to the worst."""
    source: _Ints
    pair: _Ints
    last: _Ints
    """Of each its arcs but the one with the word, as a pair, and that arc, or, less 1 and negated,
    the state where it ends."""

    def leaving(self, state: int) -> list[_Leaving]:
        """Those that leave a state, the best first: cost from here to the end of the lattice by
        the best path; number; next word (0: the lattice ends); state where that ends (number of
        states: the lattice ends); cost of the way."""
        some = slice(*self.source.searchsorted([state, state + 1]).tolist())
        numbers = range(some.start, some.stop)
        ahead, *others = (column[some].tolist() for column in self.columns)
        return list(zip(ahead, numbers, *others, strict=True))

    @cached_property
    def _steps(self) -> tuple[memoryview, ...]:
        rows = self.lattice.arcs[self.pairs.arc[: self.pairs.count]]
        columns: list[Any] = [self.pairs.before, *(rows[name].copy() for name in _WALKED)]
        return tuple(memoryview(column) for column in columns)

    def walked(self, number: int) -> tuple[float, float, bytes]:
        """Of a way the costs, not scaled (graph, acoustic), and transition-ids (int32)."""
        before, labels, graphs, acoustics = self._steps
        pair, last = int(self.pair[number]), int(self.last[number])
        ids, graph, acoustic = array("i"), 0.0, 0.0
        if last < 0:
            graph, acoustic = self.lattice.final[-1 - last].tolist()
        else:
            label, _, graph, acoustic, _ = self.lattice.arcs[last].item()
            if label:
                ids.append(label)
        while (there := before[pair]) >= 0:
            graph += graphs[pair]
            acoustic += acoustics[pair]
            if labels[pair]:
                ids.append(labels[pair])
            pair = there
        ids.reverse()
        return graph, acoustic, ids.tobytes()


class _Pairs:
    """The best ways from where words end to states, in a table that grows; those that lead to a
    state lie together.

    origin, cost (scaled), arc (the last one), before (the pair without it; -1: there is none).
    """

    def __init__(self, states: int) -> None:
        self.count = 0
        self.origin, self.arc, self.before = (np.zeros(1024, np.int32) for _ in range(3))
        self.cost = np.zeros(1024)
        self.first, self.of_state = np.zeros(states, np.int64), np.zeros(states, np.int64)

    def add(self, states: _Ints, origin: _Ints, cost: Floats, arc: _Ints, before: _Ints) -> None:
        """The best of each state and origin."""
        key = states * len(self.first) + origin
        order = key.argsort(kind="stable")  # runs that are in order are only joined
        key = key[order]
        starts = np.flatnonzero(np.diff(key, prepend=-1))
        lowest = np.minimum.reduceat(cost[order], starts)
        sizes = np.diff(starts, append=len(key))
        hits = np.flatnonzero(cost[order] == lowest.repeat(sizes))
        order = order[hits[hits.searchsorted(starts)]]  # of equals the first
        states, low = states[order], self.count
        self.count = high = low + len(order)
        if high > len(self.cost):
            for name in ("origin", "arc", "before", "cost"):
                old = getattr(self, name)
                new = np.empty(max(2 * len(old), high), old.dtype)
                new[:low] = old[:low]
                setattr(self, name, new)
        self.origin[low:high] = origin[order]
        self.cost[low:high], self.arc[low:high] = cost[order], arc[order]
        self.before[low:high] = before[order]
        starts = np.flatnonzero(np.diff(states, prepend=-1))
        self.first[states[starts]] = low + starts
        self.of_state[states[starts]] = np.diff(starts, append=len(states))

    def at(self, states: _Ints) -> tuple[_Ints, _Ints]:
        """The pairs at each of some states, one after another, and the place of its state."""
        counts = self.of_state[states]
        place = np.arange(len(states)).repeat(counts)
        shift = self.first[states] - np.cumsum(counts) + counts
        return np.arange(len(place)) + shift[place], place


@dataclass(frozen=True)
class Several:
    """Lattices side by side, as one: with many at once arrays are longer, and fewer.

    lattice: its first state leads, by a word each, to the first states of all. starts: these.
    """

    lattice: Lattice
    starts: _Ints

    @classmethod
    def of(cls, lattices: Sequence[Lattice]) -> Several:
        """Of lattices that have states, not determinised."""
        ends = np.cumsum([1, *(each.num_states for each in lattices)])
        starts = ends[:-1]
        arcs = np.concatenate([np.zeros(len(lattices), ARC), *(each.arcs for each in lattices)])
        arcs["olabel"][: len(starts)] = 1
        arcs["next"][: len(starts)] = starts
        sizes = [len(each.arcs) for each in lattices]
        arcs["next"][len(starts) :] += starts.astype(np.int32).repeat(sizes)
        counts = np.concatenate([[len(starts)], *(np.diff(each.first) for each in lattices)])
        final = np.concatenate([np.full((1, 2), np.inf), *(each.final for each in lattices)])
        first = np.append(0, np.cumsum(counts))
        return cls(Lattice(final.astype(np.float32), first, arcs), starts)

    def of_states(self, values: NDArray[Any]) -> NDArray[Any]:
        """A value of each lattice for all its states; the first one's for the state before."""
        sizes = np.diff(self.starts, append=self.lattice.num_states)
        sizes[0] += 1
        return values.repeat(sizes)


def ways(several: Several, scores: ForwardBackward, beam: float = np.inf) -> Ways:
    """All ways in paths within `beam` of the best path of the same lattice.

    Of ways between the same ends with the same word the best is taken.

    Args:
        several: the lattices.
        scores: of these, by their best paths.
        beam: paths that cost more are left out.
    """
    lattice = several.lattice
    totals = scores.arcs[: len(several.starts)] + scores.backward[several.starts]
    limit = several.of_states(totals + beam + SLACK)
    arcs, costs = lattice.arcs, scores.arcs
    alive = (scores.through <= limit[arcs["next"]]).nonzero()[0]
    targets = arcs["next"][alive].astype(np.int64)
    order = np.lexsort((targets, lattice.levels[targets]))
    alive, targets = alive[order], targets[order]
    sources, words = lattice.sources[alive], arcs["olabel"][alive]
    room = limit[targets] - costs[alive] - scores.backward[targets]
    forward = scores.forward
    pairs = _Pairs(lattice.num_states)
    none = np.zeros(1, np.int64)
    pairs.add(none, none, np.zeros(1), none, none - 1)
    spoken: list[tuple[_Ints, _Ints]] = []  # arc with a word, pair at its beginning
    level = lattice.levels[targets]
    bounds = np.flatnonzero(np.diff(level, prepend=-1, append=-1)).tolist()
    for low, high in pairwise(bounds):
        before, place = pairs.at(sources[low:high])
        place += low
        origin, cost = pairs.origin[before].astype(np.int64), pairs.cost[before]
        within = (forward[origin] + cost <= room[place]).nonzero()[0]
        before, place, origin, cost = (x[within] for x in (before, place, origin, cost))
        says = words[place] > 0
        spoken.append((alive[place[says]], before[says]))
        begun = distinct(targets[place[says]])  # where words end, others begin
        arc, state = alive[place[~says]], targets[place[~says]]
        fresh = np.full(len(begun), -1, np.int64)
        pairs.add(
            np.concatenate([state, begun]),
            np.concatenate([origin[~says], begun]),
            np.concatenate([cost[~says] + costs[arc], np.zeros(len(begun))]),
            np.concatenate([arc, fresh]),
            np.concatenate([before[~says], fresh]),
        )
    return _collected(scores, pairs, spoken, limit)


def _collected(
    scores: ForwardBackward, pairs: _Pairs, spoken: list[tuple[_Ints, _Ints]], limit: Floats
) -> Ways:
    lattice, final = scores.lattice, scores.final
    ends = np.flatnonzero(final < np.inf)
    last, place = pairs.at(ends)
    ends = ends[place]
    within = scores.forward[pairs.origin[last]] + pairs.cost[last] + final[ends] <= limit[ends]
    last, ends = last[within], ends[within]
    arc = np.concatenate([*(arcs for arcs, _ in spoken), np.full(len(last), -1)])
    pair = np.concatenate([*(before for _, before in spoken), last])
    is_word = arc >= 0
    rows = lattice.arcs[arc]
    target = np.where(is_word, rows["next"], lattice.num_states).astype(np.int64)
    word = np.where(is_word, rows["olabel"], 0)
    last = np.where(is_word, arc, 0)
    cost, ahead = pairs.cost[pair], np.zeros(len(pair))
    cost[is_word] += scores.arcs[arc[is_word]]
    ahead[is_word] = scores.backward[target[is_word]]
    cost[~is_word] += final[ends]
    last[~is_word] = -1 - ends
    ahead += cost
    source = pairs.origin[pair].astype(np.int64)
    order = np.lexsort((cost, word, target, source))
    same = np.diff(np.stack([source, target, word])[:, order], prepend=-1) == 0
    chosen = order[~same.all(0)]
    chosen = chosen[np.lexsort((ahead[chosen], source[chosen]))]
    return Ways(
        lattice=lattice,
        pairs=pairs,
        columns=tuple(column[chosen] for column in (ahead, word, target, cost)),
        source=source[chosen],
        pair=pair[chosen],
        last=last[chosen],
    )
