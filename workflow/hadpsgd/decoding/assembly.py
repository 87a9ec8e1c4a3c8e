"""From the pruned frames of a search to lattices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hadpsgd.decoding.heap import give_back
from hadpsgd.decoding.lattice import ARC, Lattice
from hadpsgd.decoding.pruning import SLACK, ending_costs
from hadpsgd.decoding.search_graph import Arcs, Costs, Indices, SearchGraph
from hadpsgd.decoding.token_passing import Links, TokenPassing
from hadpsgd.errors import UserError

_OFTEN = 8  # lattices after which memory is given back


@dataclass(frozen=True)
class _Joined:
    """Links of all frames: tokens at both ends, numbered through all frames; arc; score, if they
    have one."""

    source: NDArray[np.int32]
    target: NDArray[np.int32]
    arc: NDArray[np.int32]
    score: NDArray[np.float32] | None

    @classmethod
    def of(cls, links: Sequence[Links], base: Indices, ahead: int) -> _Joined:
        """Of each frame, which loses them; their targets are so many frames ahead. base: first
        token of each."""
        time = np.arange(len(links), dtype=np.int32).repeat([len(some.arc) for some in links])
        source, target = _moved(links, "source"), _moved(links, "target")
        source += base.take(time)
        time += ahead
        target += base.take(time)
        scored = all(some.score is not None for some in links)
        return cls(source, target, _moved(links, "arc"), _moved(links, "score") if scored else None)

    def by(self, group: NDArray[np.integer], count: int) -> list[Indices]:
        """The links that leave tokens of each of so many groups. group: of each token."""
        of_link = group.take(self.source)
        order = of_link.argsort(kind="stable")
        ends = np.bincount(of_link, minlength=count).cumsum()
        return np.split(order, ends[:-1])


def _moved(links: Sequence[Links], name: str) -> NDArray[Any]:
    """A field of all links, which do not have it any more: they take much memory."""
    whole = np.concatenate([getattr(some, name) for some in links])
    for some in links:
        setattr(some, name, whole[:0])
    return whole


def lattices(passing: TokenPassing) -> Iterator[Lattice | None]:
    """The lattices of a search whose frames are pruned, one an utterance; acoustic costs are not
    scaled. The search's frames are gone afterwards.

    None for an utterance without a path to its last frame.

    Raises:
        UserError: links without speech lead round.
    """
    frames, count = passing.frames, passing.lanes.utterances
    base = np.cumsum([0] + [frame.count for frame in frames])
    # as small as may be: such numbers are sorted faster
    utterance = np.concatenate([frame.utterance for frame in frames]).astype(
        np.min_scalar_type(count)
    )
    final = _finals(passing, base)
    used = final < np.inf
    empty = _Joined.of([frame.empty for frame in frames], base, 0)
    emitting = _Joined.of([f.emitting for f in frames if f.emitting is not None], base, 1)
    frames.clear()
    give_back()
    for ends in (empty.source, empty.target, emitting.source, emitting.target):
        used[ends] = True
    tokens, first = _ordered(used.nonzero()[0], utterance, _depths(empty, base), base, count)
    rank = np.zeros(len(utterance), np.int32)
    rank[tokens] = np.arange(len(tokens))
    final = final.take(tokens)
    parts = zip(empty.by(utterance, count), emitting.by(utterance, count), strict=True)
    bounds = pairwise(first.tolist())
    for number, ((low, high), (some, others)) in enumerate(zip(bounds, parts, strict=True)):
        if number % _OFTEN == 0:
            give_back()
        if np.isfinite(final[low:high]).any():
            source, rows = _rows(passing.graph, (empty, some), (emitting, others), rank)
            yield _lattice(source - low, rows, low, final[low:high])
        else:
            yield None


def _ordered(
    tokens: Indices, utterance: NDArray[np.integer], depth: Indices, base: Indices, count: int
) -> tuple[Indices, Indices]:
    """Tokens so that links lead upwards: by utterance, frame, and then by empty links; and where
    each utterance begins, then their number."""
    time = base.searchsorted(tokens, side="right")
    place = utterance.take(tokens).astype(np.int64)
    place *= len(base) + 1
    place += time
    place *= depth.max(initial=0) + 1
    place += depth.take(tokens)
    tokens = tokens.take(place.argsort(kind="stable"))
    return tokens, utterance.take(tokens).searchsorted(np.arange(count + 1))


def _lattice(
    source: NDArray[np.int32], rows: NDArray[np.void], start: int, final: Costs
) -> Lattice:
    order = source.argsort(kind="stable")
    arcs = rows[order]
    arcs["next"] -= start
    counts = np.bincount(source, minlength=len(final))
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    weights = np.full((len(final), 2), np.inf, np.float32)
    weights[final < np.inf] = 0.0
    weights[:, 0] = final
    return Lattice(weights, first, arcs)


def _rows(
    graph: SearchGraph,
    empty: tuple[_Joined, Indices],
    emitting: tuple[_Joined, Indices],
    rank: NDArray[np.int32],
) -> tuple[NDArray[np.int32], NDArray[np.void]]:
    """Lattice arcs of some of the links, frame by frame, and the state that each leaves."""
    (silent, some), (spoken, others) = empty, emitting
    rows = np.zeros(len(some) + len(others), ARC)
    _fill(rows[: len(some)], graph.empty, silent.arc.take(some))
    _fill(rows[len(some) :], graph.emitting, spoken.arc.take(others))
    if spoken.score is not None:
        rows["acoustic"][len(some) :] = -spoken.score.take(others)
    ends = [np.concatenate([a.take(some), b.take(others)]) for a, b in (
        (silent.source, spoken.source), (silent.target, spoken.target)
    )]  # fmt: skip
    rows["next"] = rank.take(ends[1])
    return rank.take(ends[0]), rows


def _fill(rows: NDArray[np.void], arcs: Arcs, chosen: NDArray[np.int32]) -> None:
    rows["ilabel"], rows["olabel"] = arcs.label.take(chosen), arcs.word.take(chosen)
    rows["graph"] = arcs.cost.take(chosen)


def _finals(passing: TokenPassing, base: Indices) -> Costs:
    """Cost of ending at each token of all frames, inf where no path within the lattice beam
    ends."""
    finals = np.full(base[-1], np.inf)
    for time, frame in enumerate(passing.frames):
        if frame.ends is not None:
            final, best, _ = ending_costs(frame, passing.graph)
            limit = best[frame.lane] + passing.beams.lattice_beam + SLACK
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
