"""From the pruned frames of a search to lattices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hadpsgd.decoding.lattice import ARC, Lattice
from hadpsgd.decoding.pruning import SLACK, ending_costs
from hadpsgd.decoding.search_graph import Arcs, Costs, Indices
from hadpsgd.decoding.token_passing import Links, TokenPassing
from hadpsgd.errors import UserError


@dataclass(frozen=True)
class _Joined:
    """Links of all frames: tokens at both ends, numbered through all frames; arc; frame."""

    source: NDArray[np.int32]
    target: NDArray[np.int32]
    arc: NDArray[np.int32]
    time: NDArray[np.int32]

    @classmethod
    def of(cls, links: Sequence[Links], base: Indices, ahead: int) -> _Joined:
        """Of each frame; their targets are so many frames ahead. base: first token of each."""
        time = np.arange(len(links), dtype=np.int32).repeat([len(some.arc) for some in links])
        source = np.concatenate([some.source for some in links])
        source += base.take(time)
        target = np.concatenate([some.target for some in links])
        target += base.take(time + ahead)
        return cls(
            source,
            target,
            np.concatenate([some.arc for some in links]),
            time,
        )


def lattices(passing: TokenPassing) -> list[Lattice | None]:
    """The lattices of a search whose frames are pruned, one an utterance; acoustic costs are not
    scaled. The search's frames are gone afterwards: they take much memory.

    None for an utterance without a path to its last frame.

    Raises:
        UserError: links without speech lead round.
    """
    numbered = _numbered(passing)
    order = numbered.source.argsort(kind="stable")
    source = numbered.source.take(order)
    bounds = source.searchsorted(numbered.first)
    made: list[Lattice | None] = []
    for number, (low, high) in enumerate(pairwise(numbered.first.tolist())):
        mine = slice(bounds[number], bounds[number + 1])
        rows, final = numbered.rows[order[mine]], numbered.final[low:high]
        one = _lattice(source[mine] - low, rows, low, final)
        made.append(one if np.isfinite(final).any() else None)
    return made


@dataclass(frozen=True)
class _Numbered:
    """Lattices of all utterances: first state of each utterance, then their number; of each state
    the cost of ending (inf: none); arcs, and the state that each leaves."""

    first: Indices
    final: Costs
    source: NDArray[np.int32]
    rows: NDArray[np.void]


def _numbered(passing: TokenPassing) -> _Numbered:
    frames, count = passing.frames, len(passing.lengths)
    base = np.cumsum([0] + [frame.count for frame in frames])
    utterance = np.concatenate([frame.utterance for frame in frames])
    final = _finals(passing, base)
    used = final < np.inf
    used[frames[0].bounds[:-1]] = True  # their starts
    empty = _Joined.of([frame.empty for frame in frames], base, 0)
    emitting = _Joined.of([f.emitting for f in frames if f.emitting is not None], base, 1)
    frames.clear()
    for ends in (empty.source, empty.target, emitting.source, emitting.target):
        used[ends] = True
    tokens = used.nonzero()[0]
    # by this, links lead upwards: by frame, then by empty links
    depth = _depths(empty, base)
    time = np.arange(len(base) - 1).repeat(np.diff(base))
    place = (utterance * len(base) + time) * (depth.max(initial=0) + 1) + depth
    tokens = tokens.take(place.take(tokens).argsort(kind="stable"))
    rank = np.zeros(len(utterance), np.int32)
    rank[tokens] = np.arange(len(tokens))
    first = np.searchsorted(utterance.take(tokens), np.arange(count + 1))
    source, rows = _rows(passing, empty, emitting, utterance, rank)
    return _Numbered(first, final.take(tokens), source, rows)


def _lattice(
    source: NDArray[np.int32], arcs: NDArray[np.void], start: int, final: Costs
) -> Lattice:
    arcs["next"] -= start
    counts = np.bincount(source, minlength=len(final))
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    weights = np.full((len(final), 2), np.inf, np.float32)
    weights[final < np.inf] = 0.0
    weights[:, 0] = final
    return Lattice(weights, first, arcs)


def _rows(
    passing: TokenPassing,
    empty: _Joined,
    emitting: _Joined,
    utterance: Indices,
    rank: NDArray[np.int32],
) -> tuple[NDArray[np.int32], NDArray[np.void]]:
    """Lattice arcs of all links, frame by frame, and the state that each leaves."""
    some, others = len(empty.arc), len(emitting.arc)
    rows = np.zeros(some + others, ARC)
    _fill(rows[:some], passing.graph.empty, empty.arc)
    _fill(rows[some:], passing.graph.emitting, emitting.arc)
    owner = utterance.take(emitting.source)
    for number, scores in enumerate(passing.scores):
        mine = (owner == number).nonzero()[0]
        column = passing.columns.take(emitting.arc.take(mine))
        rows["acoustic"][some + mine] = -scores[emitting.time.take(mine), column]
    rows["next"][:some], rows["next"][some:] = rank.take(empty.target), rank.take(emitting.target)
    return np.concatenate([rank.take(empty.source), rank.take(emitting.source)]), rows


def _fill(rows: NDArray[np.void], arcs: Arcs, chosen: NDArray[np.int32]) -> None:
    rows["ilabel"], rows["olabel"] = arcs.label.take(chosen), arcs.word.take(chosen)
    rows["graph"] = arcs.cost.take(chosen)


def _finals(passing: TokenPassing, base: Indices) -> Costs:
    """Cost of ending at each token of all frames, inf where no path within the lattice beam
    ends."""
    finals = np.full(base[-1], np.inf)
    for time in np.unique(passing.lengths).tolist():
        frame = passing.frames[time]
        final, best, _ = ending_costs(frame, passing.graph, passing.lengths == time)
        limit = best[frame.utterance] + passing.beams.lattice_beam + SLACK
        within = frame.cost + final <= limit
        finals[base[time] : base[time + 1]] = np.where(within, final, np.inf)
    return finals


def _depths(empty: _Joined, base: Indices) -> Indices:
    """int64 [tokens]: the most links without speech that lead to each.

    Raises:
        UserError: they lead round.
    """
    depth = np.zeros(base[-1], np.int64)
    for _ in range(np.diff(base).max(initial=0) + 1):
        deeper = depth.take(empty.source) + 1
        low = (deeper > depth.take(empty.target)).nonzero()[0]
        if not len(low):
            return depth
        np.maximum.at(depth, empty.target.take(low), deeper.take(low))
    raise UserError(
        "the graph has a cycle without speech that costs less than decoding.lattice_beam",
        fix="Look for words without phones",
    )
