"""Token passing over arrays: several utterances at once, bounded by beam and by active states.

kaldi-decoder's search with lattices knows no limit on active states: where scores say little it
would keep whole graphs alive. Here every frame keeps at most `max_active` states an utterance,
as Kaldi's lattice-faster-decoder does (its adaptive beam too). What is kept of every frame are its
tokens and the links between them, from which `hadpsgd.decoding.pruning` makes lattices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hadpsgd.decoding.heap import sparse_zeros
from hadpsgd.decoding.search_graph import Arcs, Costs, Indices, SearchGraph

# Costs count from _START up, so that 0, which fresh memory holds, is more than any: pages of the
# arrays over all states come into being only where a search gets, which is a small part of a graph.
_START, _ABSENT = -(2.0**26), 0.0
_BEAM_DELTA = 0.5  # Kaldi's: slack of the beam at the frame after one that was cut


@dataclass
class Links:
    """Links between tokens: index of the token they leave and reach, arc, acoustic cost."""

    source: NDArray[np.int32]
    target: NDArray[np.int32]
    arc: NDArray[np.int32]
    acoustic: NDArray[np.float32]

    @classmethod
    def make(
        cls,
        source: NDArray[np.integer],
        target: NDArray[np.integer],
        arc: NDArray[np.integer],
        acoustic: NDArray[np.floating],
    ) -> Links:
        """Links, in small numbers: they are most of what a search holds."""
        return cls(
            source.astype(np.int32, copy=False),
            target.astype(np.int32, copy=False),
            arc.astype(np.int32, copy=False),
            acoustic.astype(np.float32, copy=False),
        )

    def keep(self, chosen: NDArray[np.bool_]) -> Links:
        """Some of them."""
        return Links(
            self.source[chosen], self.target[chosen], self.arc[chosen], self.acoustic[chosen]
        )


@dataclass
class Frame:
    """Tokens at the end of a frame: utterance, state and best cost of each (from _START up).

    empty: links among them. emitting: links into the next frame; None at the front.
    """

    utterance: Indices
    state: Indices
    cost: Costs
    empty: Links
    emitting: Links | None = None


@dataclass(frozen=True)
class Beams:
    """Limits of the search, in scaled costs."""

    beam: float
    lattice_beam: float
    max_active: int


@dataclass
class Scratch:
    """Arrays over all utterances and states of a batch, kept for the next one.

    best: cost of a token at this frame, _ABSENT where there is none. slot: its index.
    """

    best: Costs = field(default_factory=lambda: np.zeros(0))
    slot: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))

    def of(self, size: int) -> tuple[Costs, NDArray[np.int32]]:
        """Both arrays, of that size; every search leaves `best` as it found it, all absent."""
        if len(self.best) < size:
            self.best = sparse_zeros(size, np.float64)
            self.slot = sparse_zeros(size, np.int32)
        return self.best[:size], self.slot[:size]


class TokenPassing:
    """The search of a batch of utterances, frame by frame.

    Args:
        graph: the graph.
        columns: int64 [emitting arcs], the column of scores that each arc reads.
        scores: of each utterance, float32 [frames, columns]: log-likelihoods, not scaled.
        acoustic_scale: their scale.
        beams: limits.
        starts: int64 [utterances], where each one starts; None: where the graph does.
        scratch: arrays that an earlier search of the same graph used.
    """

    def __init__(
        self,
        graph: SearchGraph,
        columns: Indices,
        scores: Sequence[NDArray[np.float32]],
        acoustic_scale: float,
        beams: Beams,
        starts: Indices | None = None,
        scratch: Scratch | None = None,
    ) -> None:
        self.graph, self.columns, self.scores, self.beams = graph, columns, scores, beams
        self._scale = np.float32(acoustic_scale)
        self.lengths = np.array([len(matrix) for matrix in scores])
        # a key is an utterance and a state in one number
        self._size = max(graph.num_states, 1)
        self._best, self._slot = (scratch or Scratch()).of(len(scores) * self._size)
        utterance = np.arange(len(scores))
        keys = utterance * self._size + (graph.start if starts is None else starts)
        self._best[keys] = _START
        cutoff = np.full(len(scores), _START + beams.beam)
        keys = self._closed(keys, cutoff)
        # the token of its start comes first of an utterance's
        frame = self._frame(keys[np.argsort(keys // self._size, kind="stable")])
        self._forget(frame)
        self.frames = [frame]

    def advance(self) -> None:
        """Consume one frame of every utterance that has one left."""
        time = len(self.frames) - 1
        front, emitting = self.frames[-1], self.graph.emitting
        beam, active = self._active(front, time)
        owner, state = front.utterance.take(active), front.state.take(active)
        counts, arcs = emitting.leaving(state)
        cost = front.cost.take(active).repeat(counts)
        acoustic = self._acoustic(time, owner.repeat(counts), arcs)
        cost += emitting.cost.take(arcs)
        cost += acoustic
        sizes = np.bincount(owner, weights=counts, minlength=len(self.lengths)).astype(np.int64)
        cutoff = _least(cost, sizes) + beam
        kept = (cost <= cutoff.repeat(sizes)).nonzero()[0]
        cost, arcs, token = cost.take(kept), arcs.take(kept), active.repeat(counts).take(kept)
        keys = front.utterance.take(token) * self._size + emitting.next.take(arcs)
        np.minimum.at(self._best, keys, cost)
        # sorted: an utterance's tokens lie side by side, and its states by their number
        frame = self._frame(np.sort(self._closed(self._unique(keys), cutoff)))
        # a link this much worse than the best into its token is in no path within the lattice beam
        good = (cost <= self._best.take(keys) + self.beams.lattice_beam).nonzero()[0]
        front.emitting = Links.make(
            token.take(good),
            self._slot.take(keys.take(good)),
            arcs.take(good),
            acoustic.take(kept.take(good)),
        )
        self._forget(frame)
        self.frames.append(frame)

    def _active(self, front: Frame, time: int) -> tuple[Costs, Indices]:
        """The beam of every utterance at the next frame, and the tokens that go on."""
        count = len(self.lengths)
        sizes = np.bincount(front.utterance, minlength=count)
        best = _least(front.cost, sizes)
        beam = np.full(count, self.beams.beam)
        limits = np.where(self.lengths > time, best + beam, -np.inf)
        inside = front.cost <= limits.repeat(sizes)
        numbers = np.bincount(front.utterance[inside], minlength=count)
        for crowded in np.flatnonzero(numbers > self.beams.max_active).tolist():
            costs = front.cost[front.utterance == crowded]
            limit = np.partition(costs, self.beams.max_active)[self.beams.max_active]
            inside &= (front.utterance != crowded) | (front.cost < limit)
            beam[crowded] = min(self.beams.beam, limit - best[crowded] + _BEAM_DELTA)
        return beam, inside.nonzero()[0]

    def _acoustic(self, time: int, utterance: Indices, arcs: Indices) -> NDArray[np.float32]:
        """Acoustic cost of each arc at a frame."""
        width = self.scores[0].shape[1]
        rows = [
            matrix[time] if time < len(matrix) else np.zeros(width, np.float32)
            for matrix in self.scores
        ]
        utterance *= width
        utterance += self.columns.take(arcs)
        return (np.concatenate(rows) * -self._scale).take(utterance)

    def _unique(self, keys: Indices) -> Indices:
        """Each key once, in order of its last appearance."""
        places = np.arange(len(keys), dtype=np.int32)
        self._slot[keys] = places
        return keys[self._slot.take(keys) == places]

    def _closed(self, keys: Indices, cutoff: Costs) -> Indices:
        """Follow empty arcs from tokens until no cost falls; all keys, new ones at the end."""
        parts, front = [keys], keys
        while True:
            token, arcs = self._empty_arcs(front)
            cost = self._best.take(token) + self.graph.empty.cost.take(arcs)
            utterance = token // self._size
            reached = utterance * self._size + self.graph.empty.next.take(arcs)
            better = (cost < self._best.take(reached)) & (cost <= cutoff.take(utterance))
            if not better.any():
                return np.concatenate(parts)
            reached, cost = reached[better], cost[better]
            new = self._best.take(reached) == _ABSENT
            np.minimum.at(self._best, reached, cost)
            parts.append(self._unique(reached[new]))
            front = self._unique(reached)

    def _frame(self, keys: Indices) -> Frame:
        """The frame of tokens, with the links among them."""
        self._slot[keys] = np.arange(len(keys), dtype=np.int32)
        utterance, state = np.divmod(keys, self._size)
        return Frame(utterance, state, self._best.take(keys), self._empty_links(keys))

    def _empty_arcs(self, keys: Indices) -> tuple[Indices, Indices]:
        """(key, arc) of every empty arc that leaves the keys' states."""
        states = keys % self._size
        some = self.graph.empty.count.take(states).nonzero()[0]
        counts, arcs = self.graph.empty.leaving(states.take(some))
        return keys.take(some).repeat(counts), arcs

    def _empty_links(self, keys: Indices) -> Links:
        token, arcs = self._empty_arcs(keys)
        cost = self._best.take(token) + self.graph.empty.cost.take(arcs)
        reached = token // self._size * self._size + self.graph.empty.next.take(arcs)
        limit = self._best.take(reached)
        good = ((cost <= limit + self.beams.lattice_beam) & (limit < _ABSENT)).nonzero()[0]
        source, target = self._slot.take(token.take(good)), self._slot.take(reached.take(good))
        return Links.make(source, target, arcs.take(good), np.zeros(len(good), np.float32))

    def _forget(self, frame: Frame) -> None:
        self._best[frame.utterance * self._size + frame.state] = _ABSENT


def _least(costs: Costs, sizes: Indices) -> Costs:
    """The least cost of each group of neighbours; inf where a group is empty."""
    least = np.full(len(sizes), np.inf)
    some = sizes.nonzero()[0]
    if len(some):
        least[some] = np.minimum.reduceat(costs, (sizes.cumsum() - sizes)[some])
    return least


def arc_costs(arcs: Arcs, links: Links) -> Costs:
    """Graph and acoustic cost of links."""
    return np.add(arcs.cost[links.arc], links.acoustic, dtype=np.float64)
