"""Token passing over arrays: several utterances at once, bounded by beam and by active states.

kaldi-decoder's search with lattices knows no limit on active states: where scores say little it
would keep whole graphs alive. Here every frame keeps at most `max_active` states an utterance,
as Kaldi's lattice-faster-decoder does (its adaptive beam too). What is kept of every frame are the
links between its tokens, from which `hadpsgd.decoding.pruning` makes lattices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hadpsgd.decoding.search_graph import Costs, Indices, Leaving, SearchGraph
from hadpsgd.decoding.slots import Slots

_BEAM_DELTA = 0.5  # Kaldi's: slack of the beam at the frame after one that was cut
_ROUNDING = 1e-9
_BLOCK = 8  # frames of which scores are scaled and laid side by side at a time


@dataclass
class Links:
    """Links between tokens: index of the token they leave and reach, arc of the graph, and by how
    much they are worse than the best way to the token that they reach."""

    source: NDArray[np.int32]
    target: NDArray[np.int32]
    arc: NDArray[np.int32]
    worse: NDArray[np.float32]

    @classmethod
    def make(cls, source: Indices, target: Indices, arc: Indices, worse: Costs) -> Links:
        """Links, in small numbers: they are most of what a search holds."""
        return cls(
            source.astype(np.int32),
            target.astype(np.int32),
            arc.astype(np.int32),
            worse.astype(np.float32),
        )

    def take(self, chosen: Indices) -> Links:
        """Some of them."""
        return Links(
            self.source.take(chosen),
            self.target.take(chosen),
            self.arc.take(chosen),
            self.worse.take(chosen),
        )


@dataclass
class Frame:
    """Tokens at the end of a frame, those of an utterance side by side.

    bounds: int64 [utterances + 1], first token of each. state: int64 [tokens]. cost: float64
    [tokens], of the best way there. empty: links among them. emitting: links into the next frame;
    None at the front.

    State and cost are there at the front, and where an utterance ends; elsewhere they are not
    needed any more, and empty.
    """

    bounds: Indices
    state: Indices
    cost: Costs
    empty: Links
    emitting: Links | None = None

    @property
    def utterance(self) -> Indices:
        """int64 [tokens]: the utterance of each."""
        return np.arange(len(self.bounds) - 1).repeat(self.sizes)

    @property
    def sizes(self) -> Indices:
        """int64 [utterances]: how many tokens each has."""
        return self.bounds[1:] - self.bounds[:-1]

    @property
    def count(self) -> int:
        """Number of tokens."""
        return int(self.bounds[-1])


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
        columns: integers [emitting arcs], the column of scores that each arc reads.
        scores: of each utterance, float32 [frames, columns]: log-likelihoods, not scaled.
        acoustic_scale: their scale.
        beams: limits.
        starts: int64 [utterances], where each one starts; None: where the graph does.
    """

    def __init__(
        self,
        graph: SearchGraph,
        columns: NDArray[np.integer],
        scores: Sequence[NDArray[np.float32]],
        acoustic_scale: float,
        beams: Beams,
        starts: Indices | None = None,
    ) -> None:
        self.graph, self.columns, self.scores, self.beams = graph, columns, scores, beams
        self.lengths = np.array([len(matrix) for matrix in scores])
        self._scale = np.float32(acoustic_scale)
        self._block = np.zeros((len(scores), _BLOCK, scores[0].shape[1]), np.float32)
        # a key is an utterance and a state in one number
        self._shift = graph.num_states.bit_length()
        self._state = (1 << self._shift) - 1
        self._slots = Slots()
        utterance = np.arange(len(scores)) << self._shift
        self._slots.add(utterance + (graph.start if starts is None else starts))
        frame, *_ = self._closed(np.zeros(len(scores)), np.full(len(scores), beams.beam))
        self.frames = [frame]

    def advance(self) -> None:
        """Consume one frame of every utterance that has one left."""
        time = len(self.frames) - 1
        front, emitting = self.frames[-1], self.graph.emitting
        active, beam = self._active(front, time)
        some, counts = emitting.some(front.state.take(active))
        active = active.take(some)
        token, arcs = emitting.each(front.state.take(active), counts)
        bounds = active.searchsorted(front.bounds)
        owner = np.arange(len(beam)).repeat(np.diff(bounds))
        acoustic = self._acoustic(time, owner, token, arcs)
        cost = front.cost.take(active).take(token)
        cost += emitting.cost.take(arcs)
        cost += acoustic
        sizes = np.diff(token.searchsorted(bounds))
        cutoff = _least(cost, sizes) + beam
        kept = (cost <= cutoff.repeat(sizes)).nonzero()[0]
        cost, arcs, token = cost.take(kept), arcs.take(kept), token.take(kept)
        keys = (owner << self._shift).take(token)
        keys += emitting.next.take(arcs)
        self._slots.clear()
        target = self._slots.add(keys)
        best = np.full(len(self._slots.keys), np.inf)
        np.minimum.at(best, target, cost)
        frame, rank, best = self._closed(best, cutoff)
        cost -= best.take(target)
        # a link this much worse than the best into its token is in no path within the lattice beam
        good = (cost <= self.beams.lattice_beam).nonzero()[0]
        front.emitting = Links.make(
            active.take(token.take(good)),
            rank.take(target.take(good)),
            arcs.take(good),
            cost.take(good),
        )
        if not (self.lengths == time).any():
            front.state, front.cost = np.zeros(0, np.int64), np.zeros(0)
        self.frames.append(frame)

    def _active(self, front: Frame, time: int) -> tuple[Indices, Costs]:
        """The tokens that go on, and the beam of every utterance at the next frame."""
        sizes = front.sizes
        best = _least(front.cost, sizes)
        beam = np.full(len(sizes), self.beams.beam)
        limits = np.where(self.lengths > time, best + beam, -np.inf)
        inside = front.cost <= limits.repeat(sizes)
        for crowded in (sizes > self.beams.max_active).nonzero()[0].tolist():
            mine = slice(front.bounds[crowded], front.bounds[crowded + 1])
            if inside[mine].sum() > self.beams.max_active:
                costs = front.cost[mine]
                limit = np.partition(costs, self.beams.max_active)[self.beams.max_active]
                inside[mine] &= costs < limit
                beam[crowded] = min(self.beams.beam, limit - best[crowded] + _BEAM_DELTA)
        return inside.nonzero()[0], beam

    def _acoustic(
        self, time: int, owner: Indices, token: Indices, arcs: Indices
    ) -> NDArray[np.float32]:
        """Acoustic cost of each arc at a frame."""
        at = time % _BLOCK
        if at == 0:
            for rows, matrix in zip(self._block, self.scores, strict=True):
                some = matrix[time : time + _BLOCK]
                np.multiply(some, -self._scale, out=rows[: len(some)])
        _, height, width = self._block.shape
        place = (owner * (height * width)).take(token)
        place += self.columns.take(arcs)
        return self._block.ravel()[at * width :].take(place)

    def _closed(self, cost: Costs, cutoff: Costs) -> tuple[Frame, Indices, Costs]:
        """Follow empty arcs from the tokens in the slots, of these costs: the frame of all tokens,
        what place each has in it, and the costs."""
        ways, count = self.graph.ways, len(cost)
        spoken, token, way = self._empty(ways, np.arange(count))
        keys = self._slots.keys.take(token)
        before = cost.take(token)
        limit = cutoff.take(keys >> self._shift)
        inside = (before + ways.peak.take(way) <= limit).nonzero()[0]
        way = way.take(inside)
        keys = (keys & ~self._state).take(inside) + ways.next.take(way)
        cost = self._lowered(cost, keys, before.take(inside) + ways.cost.take(way))
        arcs = self.graph.empty
        while True:
            new, *_ = self._empty(arcs, np.arange(count, len(cost)))
            _, token, arc = self._empty(arcs, np.concatenate([spoken, new]))
            keys = self._slots.keys.take(token)
            limit = cutoff.take(keys >> self._shift)
            keys = (keys & ~self._state) + arcs.next.take(arc)
            target = self._slots.find(keys)
            through = cost.take(token) + arcs.cost.take(arc)
            there = target >= 0
            worse = through - cost.take(target)
            # what the ways leave out: some of graphs where they are very many
            missed = (np.where(there, worse < -_ROUNDING, through <= limit)).nonzero()[0]
            if not len(missed):
                break
            cost = self._lowered(cost, keys.take(missed), through.take(missed))
        good = ((worse <= self.beams.lattice_beam) & there).nonzero()[0]
        order, rank, bounds = self._order()
        links = Links.make(
            rank.take(token.take(good)),
            rank.take(target.take(good)),
            arc.take(good),
            worse.take(good),
        )
        state = (self._slots.keys & self._state).take(order)
        return Frame(bounds, state, cost.take(order), links), rank, cost

    def _lowered(self, cost: Costs, keys: Indices, through: Costs) -> Costs:
        """The costs of all tokens, new ones' too, when these keys are reached at these costs."""
        target = self._slots.add(keys)
        new = len(self._slots.keys) - len(cost)
        if new:
            cost = np.concatenate([cost, np.full(new, np.inf)])
        np.minimum.at(cost, target, through)
        return cost

    def _empty(self, table: Leaving, tokens: Indices) -> tuple[Indices, Indices, Indices]:
        """Those of the tokens whose states something leaves; of all that leaves: its token, and
        its place in the table."""
        states = self._slots.keys.take(tokens) & self._state
        some, counts = table.some(states)
        tokens = tokens.take(some)
        owner, found = table.each(states.take(some), counts)
        return tokens, tokens.take(owner), found

    def _order(self) -> tuple[Indices, Indices, Indices]:
        """All tokens, utterance by utterance; the place of each in this order; and the first of
        each utterance."""
        owner = self._slots.keys >> self._shift
        order = owner.argsort(kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        sizes = np.bincount(owner, minlength=len(self.lengths))
        return order, rank, np.concatenate([[0], sizes.cumsum()])


def _least(costs: Costs, sizes: Indices) -> Costs:
    """The least cost of each group of neighbours; inf where a group is empty."""
    least = np.full(len(sizes), np.inf)
    some = sizes.nonzero()[0]
    if len(some):
        least[some] = np.minimum.reduceat(costs, (sizes.cumsum() - sizes)[some])
    return least
