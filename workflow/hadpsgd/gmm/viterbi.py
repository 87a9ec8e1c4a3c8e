"""Viterbi alignment of many utterances at once, vectorised over their states.

Paths that fall behind the best one by more than a beam are dropped, as in Kaldi's
gmm-align-compiled; an utterance of which no path is left at its end is searched again with a
wider beam. Without a beam the best of all paths is found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hadpsgd.gmm.training_graph import Graph

Floats = NDArray[np.float32]
IMPOSSIBLE = np.float32(-np.inf)
_CELLS = 6_000_000  # states times frames of a batch: 24 MB
MOST_CELLS = 1 << 28
"""States times frames of an utterance that is still aligned: 1 GiB, which is held twice."""


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """The best path of an utterance.

    ids: int32 [frames], transition-ids in Kaldi's order (first the one that leaves the state,
    then its self-loops). score: scaled log-probability of path and features. gap: the most by
    which the path ever fell behind the best one.
    """

    ids: NDArray[np.int32]
    score: float
    gap: float


def align(
    graphs: Sequence[Graph],
    lengths: Sequence[int] | NDArray[np.integer],
    emission: Callable[[int], Floats],
    scores_of_ids: Floats,
    beams: Sequence[float] = (math.inf,),
) -> list[Alignment | None]:
    """Align utterances of `lengths` frames; None where no path is found, or it is too long.

    emission(u): float32 [frames, states]: scaled log-likelihood of every state of graph u (the
    start's column is not read). scores_of_ids: [ids + 1]: scaled log-probabilities. beams: in
    rising order; each is for the utterances that have no path within the one before.
    """
    results: list[Alignment | None] = [None] * len(graphs)
    left = [
        u
        for u, graph in enumerate(graphs)
        if not (graph.is_empty or is_too_long(graph, int(lengths[u]))) and lengths[u] > 0
    ]
    left.sort(key=lambda u: -int(lengths[u]))
    for beam in beams:
        for group in _groups(left, graphs, lengths):
            batch = _Batch([graphs[u] for u in group], map(emission, group), scores_of_ids,
                           np.array([lengths[u] for u in group]))  # fmt: skip
            for u, found in zip(group, batch.run(beam), strict=True):
                results[u] = found
        left = [u for u in left if results[u] is None]
    return results


def is_too_long(graph: Graph, frames: int) -> bool:
    """Whether an utterance takes too much memory: minutes without segments."""
    return len(graph.pdfs) * frames > MOST_CELLS


def _groups(
    order: list[int], graphs: Sequence[Graph], lengths: Sequence[int] | NDArray[np.integer]
) -> Iterator[list[int]]:
    group: list[int] = []
    states = 0
    for u in order:
        size = len(graphs[u].pdfs)
        if group and (states + size) * int(lengths[group[0]]) > _CELLS:
            yield group
            group, states = [], 0
        group.append(u)
        states += size
    if group:
        yield group


class _Batch:
    """Utterances in falling order of length: those still running are always the first."""

    def __init__(
        self,
        graphs: Sequence[Graph],
        emissions: Iterable[Floats],
        scores_of_ids: Floats,
        lengths: NDArray[np.int64],
    ) -> None:
        self.graphs = graphs
        self.lengths = lengths
        sizes = [len(graph.pdfs) for graph in graphs]
        self.base = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        states = int(self.base[-1])
        arcs = [graph.arcs for graph in graphs]
        shift = np.repeat(self.base[:-1], [len(part) for part in arcs])
        flat = np.concatenate(arcs)
        source = flat["source"] + shift
        target = flat["target"] + shift
        weight = scores_of_ids[flat["id"]] - flat["cost"]
        # every state needs an arc: a useless one into the starts
        source = np.concatenate([source, self.base[:-1]])
        target = np.concatenate([target, self.base[:-1]])
        weight = np.concatenate([weight, np.full(len(graphs), IMPOSSIBLE, np.float32)])
        order = np.argsort(target, kind="stable")
        self.source, self.weight = source[order], weight[order]
        self.ids = np.concatenate([flat["id"], np.zeros(len(graphs), np.int32)])[order]
        self.loops = self.source == target[order]
        self.first = np.searchsorted(target[order], np.arange(states + 1))
        self._index_arcs()
        self.scores_of_ids = scores_of_ids
        self.cells = np.empty((int(self.lengths[0]), states), np.float32)
        for u, emission in enumerate(emissions):
            self.cells[: len(emission), self.base[u] : self.base[u + 1]] = emission
        self.best = np.full((len(self.cells), len(graphs)), IMPOSSIBLE)
        # of every frame, how many utterances are not over
        frames = np.arange(len(self.cells))
        self.running = np.searchsorted(-self.lengths, -frames, side="left").tolist()

    def _index_arcs(self) -> None:
        """Two arcs of every state in `near` (one of them twice if it has one), others in `rest`."""
        counts = np.diff(self.first)
        pair = self.first[:-1] + np.array([[0], [1]]) * (counts > 1)
        self.near, self.near_weight = self.source[pair], self.weight[pair]
        self.many = np.flatnonzero(counts > 2)
        left = counts[self.many] - 2
        self.rest_first = np.concatenate([[0], np.cumsum(left)])
        skipped = self.first[self.many] + 2 - self.rest_first[:-1]
        rest = np.repeat(skipped, left) + np.arange(self.rest_first[-1])
        self.rest, self.rest_weight = self.source[rest], self.weight[rest]

    def run(self, beam: float) -> list[Alignment | None]:
        self._forward(beam)
        return self._backward()

    def _forward(self, beam: float) -> None:
        """Turn emissions into the score of the best path to every state, frame by frame."""
        owner = np.repeat(np.arange(len(self.graphs)), np.diff(self.base))
        previous = np.full(int(self.base[-1]), IMPOSSIBLE)
        previous[self.base[:-1]] = 0.0
        for frame, running in enumerate(self.running):
            states = self.base[running]
            row = self.cells[frame, :states]
            row += self._best_entries(previous, states)
            row[self.base[:running]] = IMPOSSIBLE
            best = np.maximum.reduceat(row, self.base[:running])
            self.best[frame, :running] = best
            if beam < math.inf:
                worst = (best - np.float32(beam)).take(owner[:states])
                np.putmask(row, row < worst, IMPOSSIBLE)
            previous = row

    def _best_entries(self, previous: Floats, states: int) -> Floats:
        """The best score with which each of the first states is entered.

        Most states have at most two arcs: those are compared at once, the others' rest apart.
        """
        best = previous.take(self.near[0, :states])
        best += self.near_weight[0, :states]
        other = previous.take(self.near[1, :states])
        other += self.near_weight[1, :states]
        np.maximum(best, other, out=best)
        many = int(np.searchsorted(self.many, states))
        if many:
            arcs = self.rest_first[many]
            scores = previous.take(self.rest[:arcs])
            scores += self.rest_weight[:arcs]
            rest = np.maximum.reduceat(scores, self.rest_first[:many])
            best[self.many[:many]] = np.maximum(best.take(self.many[:many]), rest)
        return best

    def _backward(self) -> list[Alignment | None]:
        """Follow the best paths back, all utterances together."""
        count = len(self.graphs)
        state = np.zeros(count, np.int64)
        score = np.full(count, -np.inf)
        leave = np.zeros(count, np.int32)
        for u, graph in enumerate(self.graphs):
            ends = graph.ends
            last = self.cells[self.lengths[u] - 1, ends["source"] + self.base[u]]
            totals = last + self.scores_of_ids[ends["id"]] - ends["cost"]
            winner = int(np.argmax(totals))
            score[u], leave[u] = totals[winner], ends["id"][winner]
            state[u] = self.base[u] + ends["source"][winner]
        gap = np.zeros(count)
        entered = np.zeros((len(self.cells), count), np.int64)
        for frame in range(len(self.cells) - 1, -1, -1):
            running = self.running[frame]
            here = state[:running]
            with np.errstate(invalid="ignore"):
                behind = self.best[frame, :running] - self.cells[frame, here]
            gap[:running] = np.maximum(gap[:running], behind)
            arc = self._best_arc(frame, here)
            entered[frame, :running] = arc
            state[:running] = self.source[arc]
        return [
            self._alignment(entered[: self.lengths[u], u], leave[u], score[u], gap[u])
            for u in range(count)
        ]

    def _best_arc(self, frame: int, states: NDArray[np.int64]) -> NDArray[np.int64]:
        """The arc by which the best path entered each of `states` at `frame`."""
        begin = self.first.take(states)
        sizes = self.first.take(states + 1) - begin
        ends = sizes.cumsum()
        starts = ends - sizes
        arcs = (begin - starts).repeat(sizes)
        arcs += np.arange(ends[-1])
        scores = self.weight.take(arcs)
        sources = self.source.take(arcs)
        if frame:
            scores += self.cells[frame - 1].take(sources)
        else:
            start = np.isin(sources, self.base[:-1])
            scores = np.where(start, scores, IMPOSSIBLE)
        winners = np.maximum.reduceat(scores, starts)
        hits = (scores == winners.repeat(sizes)).nonzero()[0]
        return arcs.take(hits.take(hits.searchsorted(starts)))  # the first of each state

    def _alignment(
        self, entered: NDArray[np.int64], leave: int, score: float, gap: float
    ) -> Alignment | None:
        if not np.isfinite(score):
            return None
        ids = kaldi_order(self.ids[entered], self.loops[entered], leave)
        return Alignment(ids=ids, score=float(score), gap=float(gap))


def kaldi_order(ids: NDArray[np.int32], loops: NDArray[np.bool_], leave: int) -> NDArray[np.int32]:
    """Transition-ids of frames in Kaldi's order (graphs made with --reorder=true).

    ids[t] was taken to enter frame t's state; Kaldi puts first the id that leaves the state,
    then its self-loops. `leave` leaves the last state.
    """
    result = ids.copy()
    entries = np.flatnonzero(~loops)
    result[entries[:-1]] = ids[entries[1:]]
    result[entries[-1]] = leave
    return result
