"""Token passing over arrays: several utterances at once, bounded by beam and by active states.

kaldi-decoder's search with lattices knows no limit on active states: where scores say little it
would keep whole graphs alive. Here every frame keeps at most `max_active` states an utterance,
as Kaldi's lattice-faster-decoder does (its adaptive beam too). What is kept of every frame are its
tokens and the links between them, from which `hadpsgd.decoding.pruning` makes lattices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hadpsgd.decoding.search_graph import Arcs, Costs, Indices, SearchGraph

_BEAM_DELTA = 0.5  # Kaldi's: slack of the beam at the frame after one that was cut


@dataclass
class Links:
    """Links between tokens: index of the token they leave and reach, arc, acoustic cost."""

    source: NDArray[np.int32]
    target: NDArray[np.int32]
    arc: NDArray[np.int32]
    acoustic: NDArray[np.float32]

    @classmethod
    def make(cls, source: Indices, target: Indices, arc: Indices, acoustic: Costs) -> Links:
        """Links, in small numbers: they are most of what a search holds."""
        return cls(
            source.astype(np.int32),
            target.astype(np.int32),
            arc.astype(np.int32),
            acoustic.astype(np.float32),
        )

    def keep(self, chosen: NDArray[np.bool_]) -> Links:
        """Some of them."""
        return Links(
            self.source[chosen], self.target[chosen], self.arc[chosen], self.acoustic[chosen]
        )


@dataclass
class Frame:
    """Tokens at the end of a frame: utterance, state and best cost of each.

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


class TokenPassing:
    """The search of a batch of utterances, frame by frame.

    Args:
        graph: the graph.
        columns: int64 [emitting arcs], the column of scores that each arc reads.
        scores: of each utterance, float32 [frames, columns]: log-likelihoods, scaled.
        beams: limits.
        starts: int64 [utterances], where each one starts; None: where the graph does.
    """

    def __init__(
        self,
        graph: SearchGraph,
        columns: Indices,
        scores: Sequence[NDArray[np.float32]],
        beams: Beams,
        starts: Indices | None = None,
    ) -> None:
        self.graph, self.columns, self.scores, self.beams = graph, columns, scores, beams
        self.lengths = np.array([len(matrix) for matrix in scores])
        # a key is an utterance and a state, side by side in one number
        self._bits = max(graph.num_states - 1, 1).bit_length()
        self._best = np.full(len(scores) << self._bits, np.inf)  # of a key: cost at this frame
        self._slot = np.zeros(len(self._best), np.int64)  # and its token's index
        keys = (np.arange(len(scores)) << self._bits) + (graph.start if starts is None else starts)
        self._best[keys] = 0.0
        cutoff = np.full(len(scores), beams.beam)
        self.frames = [self._finish(keys, cutoff)]

    def advance(self) -> None:
        """Consume one frame of every utterance that has one left."""
        time = len(self.frames) - 1
        front = self.frames[-1]
        beam, active = self._active(front, time)
        source, arcs = self.graph.emitting.leaving(front.state[active])
        token = active[source]
        utterance = front.utterance[token]
        acoustic = -self._scores_at(time, utterance, self.columns[arcs])
        cost = front.cost[token] + self.graph.emitting.cost[arcs] + acoustic
        best = np.full(len(self.lengths), np.inf)
        np.minimum.at(best, utterance, cost)
        cutoff = best + beam
        kept = np.flatnonzero(cost <= cutoff[utterance])
        keys = (utterance[kept] << self._bits) + self.graph.emitting.next[arcs[kept]]
        np.minimum.at(self._best, keys, cost[kept])
        frame = self._finish(self._unique(keys), cutoff, keep_best=True)
        # a link this much worse than the best into its token is in no path within the lattice beam
        good = cost[kept] <= self._best[keys] + self.beams.lattice_beam
        kept, keys = kept[good], keys[good]
        front.emitting = Links.make(token[kept], self._slot[keys], arcs[kept], acoustic[kept])
        self._forget(frame)
        self.frames.append(frame)

    def _active(self, front: Frame, time: int) -> tuple[Costs, Indices]:
        """The beam of every utterance at the next frame, and the tokens that go on."""
        count = len(self.lengths)
        best = np.full(count, np.inf)
        np.minimum.at(best, front.utterance, front.cost)
        beam = np.full(count, self.beams.beam)
        inside = front.cost <= (best + beam)[front.utterance]
        numbers = np.bincount(front.utterance[inside], minlength=count)
        for crowded in np.flatnonzero(numbers > self.beams.max_active).tolist():
            costs = front.cost[front.utterance == crowded]
            limit = np.partition(costs, self.beams.max_active)[self.beams.max_active]
            inside &= (front.utterance != crowded) | (front.cost < limit)
            beam[crowded] = min(self.beams.beam, limit - best[crowded] + _BEAM_DELTA)
        alive = self.lengths > time
        return beam, np.flatnonzero(inside & alive[front.utterance])

    def _scores_at(self, time: int, utterance: Indices, columns: Indices) -> Costs:
        """Score of each link at a frame."""
        width = self.scores[0].shape[1]
        rows = [
            matrix[time] if time < len(matrix) else np.zeros(width, np.float32)
            for matrix in self.scores
        ]
        return np.concatenate(rows)[utterance * width + columns].astype(np.float64)

    def _unique(self, keys: Indices) -> Indices:
        """Each key once, in order of its last appearance."""
        places = np.arange(len(keys))
        self._slot[keys] = places
        return keys[self._slot[keys] == places]

    def _finish(self, keys: Indices, cutoff: Costs, *, keep_best: bool = False) -> Frame:
        """Follow empty arcs from tokens until no cost falls; make the frame."""
        parts, front = [keys], keys
        while True:
            token, arcs = self._empty_arcs(front)
            cost = self._best[token] + self.graph.empty.cost[arcs]
            utterance = token >> self._bits
            reached = (utterance << self._bits) + self.graph.empty.next[arcs]
            better = np.flatnonzero((cost < self._best[reached]) & (cost <= cutoff[utterance]))
            if len(better) == 0:
                break
            reached, cost = reached[better], cost[better]
            new = self._best[reached] == np.inf
            np.minimum.at(self._best, reached, cost)
            parts.append(self._unique(reached[new]))
            front = self._unique(reached)
        keys = np.concatenate(parts)
        self._slot[keys] = np.arange(len(keys))
        utterance, state = keys >> self._bits, keys & ((1 << self._bits) - 1)
        frame = Frame(utterance, state, self._best[keys], self._empty_links(keys))
        if not keep_best:
            self._forget(frame)
        return frame

    def _empty_arcs(self, keys: Indices) -> tuple[Indices, Indices]:
        """(key, arc) of every empty arc that leaves the keys' states."""
        states = keys & ((1 << self._bits) - 1)
        some = np.flatnonzero(self.graph.empty.count[states])
        source, arcs = self.graph.empty.leaving(states[some])
        return keys[some[source]], arcs

    def _empty_links(self, keys: Indices) -> Links:
        token, arcs = self._empty_arcs(keys)
        cost = self._best[token] + self.graph.empty.cost[arcs]
        reached = (token >> self._bits << self._bits) + self.graph.empty.next[arcs]
        limit = self._best[reached]
        good = np.flatnonzero((cost <= limit + self.beams.lattice_beam) & (limit < np.inf))
        source, target = self._slot[token[good]], self._slot[reached[good]]
        return Links.make(source, target, arcs[good], np.zeros(len(good)))

    def _forget(self, frame: Frame) -> None:
        self._best[(frame.utterance << self._bits) + frame.state] = np.inf


def arc_costs(arcs: Arcs, links: Links) -> Costs:
    """Graph and acoustic cost of links."""
    return np.add(arcs.cost[links.arc], links.acoustic, dtype=np.float64)
