"""Token passing over arrays: several utterances at once, bounded by beam and by active states.

kaldi-decoder's search with lattices knows no limit on active states: where scores say little it
would keep whole graphs alive. Here every frame keeps at most `max_active` states an utterance,
as Kaldi's lattice-faster-decoder does (its adaptive beam too). What is kept of every frame are the
links between its tokens, from which `hadpsgd.decoding.pruning` makes lattices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hadpsgd.decoding.lanes import Lanes
from hadpsgd.decoding.search_graph import Costs, Indices, Leaving, SearchGraph
from hadpsgd.decoding.slots import Slots

_BEAM_DELTA = 0.5  # Kaldi's: slack of the beam at the frame after one that was cut
_ROUNDING = 1e-9
_NO_STATES, _NO_COSTS = np.zeros(0, np.int64), np.zeros(0)
INFINITE = np.array([np.inf])  # repeated, as that takes less than np.full


@dataclass
class Links:
    """Links between tokens: index of the token they leave and reach, arc of the graph, by how much
    they are worse than the best way to the token that they reach, and the scores that they pass,
    not scaled; None where they consume no frame."""

    source: NDArray[np.int32]
    target: NDArray[np.int32]
    arc: NDArray[np.int32]
    worse: NDArray[np.float32]
    score: NDArray[np.float32] | None = None

    @classmethod
    def make(
        cls,
        source: Indices,
        target: Indices,
        arc: Indices,
        worse: Costs,
        score: NDArray[np.float32] | None = None,
    ) -> Links:
        """Links, in small numbers: they are most of what a search holds."""
        return cls(
            source.astype(np.int32),
            target.astype(np.int32),
            arc.astype(np.int32),
            worse.astype(np.float32),
            score,
        )

    def take(self, chosen: Indices) -> Links:
        """Some of them."""
        return Links(
            self.source.take(chosen),
            self.target.take(chosen),
            self.arc.take(chosen),
            self.worse.take(chosen),
            None if self.score is None else self.score.take(chosen),
        )


@dataclass
class Frame:
    """Tokens at the end of a frame, those of a lane side by side.

    number: int64 [lanes], the utterance in each. ends: bool [lanes], where one ends; None: nowhere.
    bounds: int64 [lanes + 1], first token of each. state: int64 [tokens]. cost: float64 [tokens],
    of the best way there. empty: links among them. emitting: links into the next frame; None at
    the front.

    State and cost are there at the front, and where an utterance ends; elsewhere they are not
    needed any more, and empty.
    """

    number: Indices
    ends: NDArray[np.bool_] | None
    bounds: Indices
    state: Indices
    cost: Costs
    empty: Links
    emitting: Links | None = None

    @property
    def lane(self) -> Indices:
        """int64 [tokens]: the lane of each."""
        return np.arange(len(self.number)).repeat(self.sizes)

    @property
    def utterance(self) -> Indices:
        """int64 [tokens]: the utterance of each."""
        return self.number.repeat(self.sizes)

    @property
    def sizes(self) -> Indices:
        """int64 [lanes]: how many tokens each has."""
        return self.bounds[1:] - self.bounds[:-1]

    @property
    def count(self) -> int:
        """Number of tokens."""
        return int(self.bounds[-1])


@dataclass(frozen=True, kw_only=True)
class Beams:
    """Limits of the search, in scaled costs."""

    beam: float
    lattice_beam: float
    max_active: int


class TokenPassing:
    """The search of utterances, frame by frame.

    Args:
        graph: the graph.
        columns: integers [emitting arcs], the column of scores that each arc reads.
        lanes: utterances, at least one, with their scores.
        acoustic_scale: of the scores.
        beams: limits.
        starts: int64 [utterances], where each one starts; None: where the graph does.
    """

    def __init__(
        self,
        graph: SearchGraph,
        columns: NDArray[np.integer],
        lanes: Lanes,
        acoustic_scale: float,
        beams: Beams,
        starts: Indices | None = None,
    ) -> None:
        self.graph, self.columns, self.lanes, self.beams = graph, columns, lanes, beams
        self._starts, self._scale = starts, np.float32(-acoustic_scale)
        # a key is a lane and a state in one number
        self._shift = graph.num_states.bit_length()
        self._state = (1 << self._shift) - 1
        self._slots = Slots()
        self._beam = np.full(len(lanes.number), beams.beam)
        self._lanes = np.arange(len(lanes.number))
        nothing = np.zeros(0), np.full(len(lanes.number), np.inf)
        frame, *_ = self._frame(0, *nothing)
        self.frames = [frame]

    def advance(self) -> bool:
        """Consume one frame of every utterance that has one left, and let others begin; whether
        any goes on."""
        time = len(self.frames) - 1
        front, emitting = self.frames[-1], self.graph.emitting
        active, beam = self._active(front, time)
        some, counts = emitting.some(front.state.take(active))
        active = active.take(some)
        token, arcs = emitting.each(front.state.take(active), counts)
        bounds = active.searchsorted(front.bounds)
        owner = self._lanes.repeat(bounds[1:] - bounds[:-1])
        score = self.lanes.at(time, owner.take(token), self.columns.take(arcs))
        cost = front.cost.take(active).take(token)
        cost += emitting.cost.take(arcs)
        cost += score * self._scale
        bounds = token.searchsorted(bounds)
        sizes = bounds[1:] - bounds[:-1]
        cutoff = _least(cost, sizes) + beam
        kept = (cost <= cutoff.repeat(sizes)).nonzero()[0]
        cost, arcs, token = cost.take(kept), arcs.take(kept), token.take(kept)
        keys = (owner << self._shift).take(token)
        keys += emitting.next.take(arcs)
        self._slots.clear()
        target = self._slots.add(keys)
        best = INFINITE.repeat(len(self._slots.keys))
        np.minimum.at(best, target, cost)
        frame, rank, best = self._frame(time + 1, best, cutoff)
        cost -= best.take(target)
        # a link this much worse than the best into its token is in no path within the lattice beam
        good = (cost <= self.beams.lattice_beam).nonzero()[0]
        front.emitting = Links.make(
            active.take(token.take(good)),
            rank.take(target.take(good)),
            arcs.take(good),
            cost.take(good),
            score.take(kept.take(good)),
        )
        if front.ends is None:
            front.state, front.cost = _NO_STATES, _NO_COSTS
        self.frames.append(frame)
        return self.lanes.going_on(time + 1)

    def _active(self, front: Frame, time: int) -> tuple[Indices, Costs]:
        """The tokens that go on, and the beam of every lane at the next frame."""
        sizes = front.sizes
        best = _least(front.cost, sizes)
        beam = self._beam.copy()
        limits = np.where(self.lanes.until > time, best + beam, -np.inf)
        inside = front.cost <= limits.repeat(sizes)
        for crowded in (sizes > self.beams.max_active).nonzero()[0].tolist():
            mine = slice(front.bounds[crowded], front.bounds[crowded + 1])
            if inside[mine].sum() > self.beams.max_active:
                costs = front.cost[mine]
                limit = np.partition(costs, self.beams.max_active)[self.beams.max_active]
                inside[mine] &= costs < limit
                beam[crowded] = min(self.beams.beam, limit - best[crowded] + _BEAM_DELTA)
        return inside.nonzero()[0], beam

    def _frame(self, time: int, cost: Costs, cutoff: Costs) -> tuple[Frame, Indices, Costs]:
        """The frame of the tokens in the slots, of these costs, with utterances that begin at it;
        what place each token has in it, and the costs."""
        lanes = self.lanes
        begins = lanes.enter(time)
        if len(begins):
            start = self.graph.start if self._starts is None else self._starts[lanes.number[begins]]
            self._slots.add((begins << self._shift) + start)
            cost = np.concatenate([cost, np.zeros(len(begins))])
            cutoff[begins] = self.beams.beam
        cost, empty = self._closed(cost, cutoff)
        order, rank, bounds = self._order()
        token, target, arc, worse = empty
        links = Links.make(rank.take(token), rank.take(target), arc, worse)
        state = (self._slots.keys & self._state).take(order)
        ends = lanes.until == time if lanes.soonest == time else None
        return (
            Frame(lanes.number, ends, bounds, state, cost.take(order), links),
            rank,
            cost,
        )

    def _closed(
        self, cost: Costs, cutoff: Costs
    ) -> tuple[Costs, tuple[Indices, Indices, Indices, Costs]]:
        """Follow empty arcs from the tokens in the slots, of these costs: costs of all tokens, and
        the links: token left, token reached, arc, and by how much they are worse than the best."""
        ways, count = self.graph.ways, len(cost)
        spoken, token, way = self._empty(ways)
        keys = self._slots.keys.take(token)
        before = cost.take(token)
        limit = cutoff.take(keys >> self._shift)
        inside = (before + ways.peak.take(way) <= limit).nonzero()[0]
        way = way.take(inside)
        keys = (keys & ~self._state).take(inside) + ways.next.take(way)
        cost = self._lowered(cost, keys, before.take(inside) + ways.cost.take(way))
        arcs = self.graph.empty
        while True:
            some = np.concatenate([spoken, np.arange(count, len(cost))])
            _, token, arc = self._empty(arcs, some)
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
        links = token.take(good), target.take(good), arc.take(good), worse.take(good)
        return cost, links

    def _lowered(self, cost: Costs, keys: Indices, through: Costs) -> Costs:
        """The costs of all tokens, new ones' too, when these keys are reached at these costs."""
        target = self._slots.add(keys)
        new = len(self._slots.keys) - len(cost)
        if new:
            cost = np.concatenate([cost, INFINITE.repeat(new)])
        np.minimum.at(cost, target, through)
        return cost

    def _empty(
        self, table: Leaving, tokens: Indices | None = None
    ) -> tuple[Indices, Indices, Indices]:
        """Those of the tokens (None: all) whose states something leaves; of all that leaves: its
        token, and its place in the table."""
        states = self._slots.keys if tokens is None else self._slots.keys.take(tokens)
        states = states & self._state
        some, counts = table.some(states)
        owner, found = table.each(states.take(some), counts)
        tokens = some if tokens is None else tokens.take(some)
        return tokens, tokens.take(owner), found

    def _order(self) -> tuple[Indices, Indices, Indices]:
        """All tokens, lane by lane; the place of each in this order; and the first of each lane."""
        owner = self._slots.keys >> self._shift
        order = owner.argsort(kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        sizes = np.bincount(owner, minlength=len(self.lanes.number))
        return order, rank, np.concatenate([[0], sizes.cumsum()])


def _least(costs: Costs, sizes: Indices) -> Costs:
    """The least cost of each group of neighbours; inf where a group is empty."""
    least = INFINITE.repeat(len(sizes))
    some = sizes.nonzero()[0]
    if len(some):
        sizes = sizes.take(some)
        least[some] = np.minimum.reduceat(costs, sizes.cumsum() - sizes)
    return least
