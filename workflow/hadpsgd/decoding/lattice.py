"""Lattices as NumPy arrays, and best paths through them under many scales at once."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

_CHUNK = 1 << 16  # arcs that are walked through at a time
ARC = np.dtype(
    [("ilabel", "<i4"), ("olabel", "<i4"), ("graph", "<f4"), ("acoustic", "<f4"), ("next", "<i4")]
)


@dataclass(frozen=True)
class Lattice:
    """All paths that the search kept, one transition-id a frame (Kaldi's Lattice); or, where it
    is determinised, the best one of every word sequence (Kaldi's CompactLattice).

    final: float32 [states, 2], graph and acoustic cost of ending; inf where not final.
    first: int64 [states + 1], the first arc of each state; then the number of arcs.
    arcs: ARC [arcs]: transition-id (0: none), word (0: none), graph cost, acoustic cost (not
        scaled), next state. Sorted by state; arcs lead to higher states; state 0 is the start.
    ids: of a determinised lattice int32, the transition-ids of all arcs one after another; of an
        arc, `ilabel` is then how many it has. None: each has the one that `ilabel` says.
    """

    final: NDArray[np.float32]
    first: NDArray[np.int64]
    arcs: NDArray[np.void]
    ids: NDArray[np.int32] | None = None

    @property
    def num_states(self) -> int:
        """Number of states; 0 for an utterance without any path."""
        return len(self.final)

    @cached_property
    def sources(self) -> NDArray[np.int64]:
        """int64 [arcs]: the state that each arc leaves."""
        return np.repeat(np.arange(self.num_states), np.diff(self.first))

    @cached_property
    def levels(self) -> NDArray[np.int64]:
        """int64 [states]: the most arcs from the start to each state."""
        level = array("i", bytes(4 * self.num_states))  # lists would take ten times as much
        for source, target in self.ends():
            if level[source] >= level[target]:
                level[target] = level[source] + 1
        return np.frombuffer(level, np.int32).astype(np.int64) if level else np.zeros(0, np.int64)

    @cached_property
    def frames(self) -> NDArray[np.int64]:
        """int64 [arcs]: frames that each arc takes."""
        labels = self.arcs["ilabel"]
        return (labels > 0 if self.ids is None else labels).astype(np.int64)

    def transitions(self, chosen: NDArray[np.integer]) -> NDArray[np.int32]:
        """Transition-ids of some arcs one after another."""
        if self.ids is None:
            labels: NDArray[np.int32] = self.arcs["ilabel"][chosen]
            return labels[labels > 0]
        counts = self.frames[chosen]
        shift = (np.cumsum(self.frames) - self.frames)[chosen] - np.cumsum(counts) + counts
        return self.ids[np.arange(counts.sum()) + shift.repeat(counts)]

    def rebuilt(
        self, final: NDArray[np.float32], first: NDArray[np.int64], chosen: NDArray[np.integer]
    ) -> Lattice:
        """One with other states, and with arcs that are copies of some of these."""
        ids = None if self.ids is None else self.transitions(chosen)
        return Lattice(final, first, self.arcs[chosen], ids)

    def ends(self) -> Iterator[tuple[int, int]]:
        """Of every arc the states that it leaves and reaches."""
        sources, targets = self.sources, self.arcs["next"]
        for low in range(0, len(targets), _CHUNK):
            some = slice(low, low + _CHUNK)
            yield from zip(sources[some].tolist(), targets[some].tolist(), strict=True)


def topologically_sorted(lattice: Lattice, start: int = 0) -> Lattice:
    """The same lattice, its states numbered so that it starts at 0 and arcs lead to higher ones.

    Raises:
        ValueError: it has a cycle.
    """
    sources, targets = lattice.sources, lattice.arcs["next"]
    if start == 0 and np.all(targets > sources):
        return lattice
    missing = np.bincount(targets, minlength=lattice.num_states).tolist()
    first, nexts = lattice.first.tolist(), targets.tolist()
    order = [state for state, count in enumerate(missing) if count == 0]
    for state in order:  # grows while it is read
        for target in nexts[first[state] : first[state + 1]]:
            missing[target] -= 1
            if missing[target] == 0:
                order.append(target)
    if len(order) < lattice.num_states:
        raise ValueError("it has a cycle")
    if order[:1] != [start]:
        raise ValueError("states that cannot be reached from the start")
    rank = np.empty(lattice.num_states, np.int64)
    rank[order] = np.arange(lattice.num_states)
    by_source = np.argsort(rank[sources], kind="stable")
    counts = np.diff(lattice.first)[order]
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    ordered = lattice.rebuilt(lattice.final[order], starts, by_source)
    ordered.arcs["next"] = rank[ordered.arcs["next"]]
    return ordered


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """How a path is judged: graph + acoustic * acoustic_scale + word_penalty a word.

    inside: word labels that begin no word but go on with one that is spelled.
    """

    acoustic_scale: float
    word_penalty: float = 0.0
    inside: frozenset[int] = frozenset()

    def begin(self, labels: NDArray[np.int32]) -> NDArray[np.bool_]:
        """bool, as many as labels (0: none): which of them begin a word."""
        return (labels > 0) & ~np.isin(labels, list(self.inside))


@dataclass(frozen=True, kw_only=True)
class Path:
    """One path: transition-ids of its frames, words, and the frame at which each word label is.

    cost: scaled; graph and acoustic: not scaled.
    """

    transitions: NDArray[np.int32]
    words: NDArray[np.int32]
    word_frames: NDArray[np.int32]
    cost: float
    graph: float
    acoustic: float


def best_paths(lattice: Lattice, scalings: Sequence[Scaling]) -> list[Path]:
    """The best path for each scaling; an empty path for a lattice without states."""
    if lattice.num_states == 0:
        nothing = np.zeros(0, np.int32)
        return [
            Path(
                transitions=nothing,
                words=nothing,
                word_frames=nothing,
                cost=float("inf"),
                graph=0.0,
                acoustic=0.0,
            )
            for _ in scalings
        ]
    together = max(1, _TOGETHER // (1 + len(lattice.arcs)))
    starts = range(0, len(scalings), together)
    return [path for at in starts for path in _best(lattice, scalings[at : at + together])]


_TOGETHER = 1 << 22  # arcs times scalings: 100 MiB


def _best(lattice: Lattice, scalings: Sequence[Scaling]) -> list[Path]:
    costs = arc_costs(lattice, scalings)
    forward, back = _viterbi(lattice, costs)
    ends = forward + final_costs(lattice, scalings)
    last = ends.argmin(1)
    return [
        _trace(lattice, back[i], int(state), float(ends[i, state])) for i, state in enumerate(last)
    ]


def arc_costs(lattice: Lattice, scalings: Sequence[Scaling]) -> NDArray[np.float64]:
    """float64 [scalings, arcs]: scaled cost of every arc."""
    scales = np.array([s.acoustic_scale for s in scalings])[:, None]
    penalties = np.array([s.word_penalty for s in scalings])[:, None]
    arcs = lattice.arcs
    begin = {s.inside: s.begin for s in scalings}
    words = {inside: begins(arcs["olabel"]) for inside, begins in begin.items()}
    acoustic, graph = arcs["acoustic"].astype(np.float64), arcs["graph"].astype(np.float64)
    return graph + scales * acoustic + penalties * np.stack([words[s.inside] for s in scalings])


def final_costs(lattice: Lattice, scalings: Sequence[Scaling]) -> NDArray[np.float64]:
    """float64 [scalings, states]: scaled cost of ending; inf where not final."""
    scales = np.array([s.acoustic_scale for s in scalings])[:, None]
    graph, acoustic = lattice.final.astype(np.float64).T
    ending = np.isfinite(graph)
    return np.where(ending, graph + scales * np.where(ending, acoustic, 0.0), np.inf)


def _viterbi(
    lattice: Lattice, costs: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Forward costs [scalings, states] and the best arc into each state [scalings, states]."""
    forward = np.full((len(costs), lattice.num_states), np.inf)
    forward[:, 0] = 0.0
    back = np.full(forward.shape, -1, np.int32)
    targets = lattice.arcs["next"]
    order = np.lexsort((targets, lattice.levels[targets]))
    sources, targets, costs = lattice.sources[order], targets[order], costs[:, order]
    begins = np.flatnonzero(np.diff(targets, prepend=-1))  # first arc into each state
    level_of = lattice.levels[targets[begins]]
    bounds = np.flatnonzero(np.diff(level_of, prepend=-1, append=level_of[-1:] + 1))
    rows = np.arange(len(costs))[:, None]
    for low, high in pairwise(bounds.tolist()):
        groups = begins[low:high]
        end = begins[high] if high < len(begins) else len(targets)
        arcs = slice(groups[0], end)
        values = forward[:, sources[arcs]] + costs[:, arcs]
        starts = groups - groups[0]
        best = np.minimum.reduceat(values, starts, axis=1)
        forward[:, targets[groups]] = best
        sizes = np.diff(np.append(starts, values.shape[1]))
        column = np.arange(values.shape[1])
        hit = np.where(values == np.repeat(best, sizes, axis=1), column, values.shape[1])
        first_hit = np.minimum.reduceat(hit, starts, axis=1)
        back[rows, targets[groups]] = order[groups[0] + first_hit]
    return forward, back


def _trace(lattice: Lattice, back: NDArray[np.int32], state: int, cost: float) -> Path:
    chosen: list[int] = []
    graph, acoustic = (float(value) for value in lattice.final[state])
    sources = lattice.sources
    while (arc := back[state]) >= 0:
        chosen.append(int(arc))
        state = sources[arc]
    return path_of(
        lattice, np.array(chosen[::-1], np.int64), cost=cost, graph=graph, acoustic=acoustic
    )


def path_of(
    lattice: Lattice, chosen: NDArray[np.int64], *, cost: float, graph: float, acoustic: float
) -> Path:
    """A path from its arcs; graph and acoustic are the costs of ending."""
    arcs = lattice.arcs[chosen]
    spoken, taken = arcs["olabel"] > 0, lattice.frames[chosen]
    frames: NDArray[np.int64] = np.cumsum(taken) - taken
    return Path(
        transitions=lattice.transitions(chosen),
        words=arcs["olabel"][spoken],
        word_frames=frames[spoken].astype(np.int32),
        cost=cost,
        graph=graph + float(arcs["graph"].sum(dtype=np.float64)),
        acoustic=acoustic + float(arcs["acoustic"].sum(dtype=np.float64)),
    )
