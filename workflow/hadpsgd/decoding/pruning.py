"""From the tokens and links of a search to lattices: what is in no path within the lattice beam
goes (Kaldi's lattice-faster-decoder, PruneActiveTokens)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hadpsgd.decoding.lattice import ARC, Lattice
from hadpsgd.decoding.search_graph import Arcs, Costs, Indices, SearchGraph
from hadpsgd.decoding.token_passing import Frame, Links, arc_costs
from hadpsgd.errors import UserError

_SLACK = 1e-6  # rounding of sums taken in another order


def ending_costs(
    frame: Frame, graph: SearchGraph, ending: NDArray[np.bool_]
) -> tuple[Costs, Costs, NDArray[np.bool_]]:
    """Of a frame at which the utterances `ending` end: cost of ending at each token (inf where
    it may not), the best total of each utterance, and which of them reach no final state.

    Where none of an utterance's tokens is final, all may end, at no cost.
    """
    count = len(ending)
    here = ending[frame.utterance]
    final = np.where(here, graph.final[frame.state], np.inf)
    best = np.full(count, np.inf)
    np.minimum.at(best, frame.utterance, frame.cost + final)
    partial = ending & (best == np.inf)
    final[partial[frame.utterance]] = 0.0
    np.minimum.at(best, frame.utterance, frame.cost + final)
    return final, best, partial


class Pruner:
    """Prunes the frames of a batch from the last one backwards.

    lengths: int64 [utterances], their frames.
    """

    def __init__(self, graph: SearchGraph, lengths: Indices, lattice_beam: float) -> None:
        self.graph, self.lengths, self.beam = graph, lengths, lattice_beam + _SLACK
        self.partial = np.zeros(len(lengths), bool)

    def prune(self, frames: Sequence[Frame], upto: int = 0) -> None:
        """Drop links, and tokens without any, from the last frame back to `upto`.

        All tokens of the last frame stay where their utterance goes on after it.
        """
        following: Costs | None = None
        for time in range(len(frames) - 1, upto - 1, -1):
            frame = frames[time]
            extra = self._ending(frame, time)
            if following is None:
                extra = np.minimum(extra, self._going_on(frame, time))
            elif frame.emitting is not None:
                links, arcs = frame.emitting, self.graph.emitting
                worse = self._worse(frame, links, arcs, frames[time + 1].cost, following)
                kept = worse <= self.beam
                frame.emitting = links.keep(kept)
                np.minimum.at(extra, links.source[kept], worse[kept])
            extra = self._through_empty(frame, extra)
            if following is not None and time > 0:
                extra = _compact(frames[time - 1], frame, extra)
            following = extra

    def _ending(self, frame: Frame, time: int) -> Costs:
        ending = self.lengths == time
        if not ending.any():
            return np.full(len(frame.cost), np.inf)
        final, best, partial = ending_costs(frame, self.graph, ending)
        self.partial |= partial
        with np.errstate(invalid="ignore"):
            return np.where(final < np.inf, frame.cost + final - best[frame.utterance], np.inf)

    def _going_on(self, frame: Frame, time: int) -> Costs:
        return np.where((self.lengths > time)[frame.utterance], 0.0, np.inf)

    def _worse(self, frame: Frame, links: Links, arcs: Arcs, reached: Costs, extra: Costs) -> Costs:
        """How much worse than the best path the best path through each link is."""
        through = frame.cost[links.source] + arc_costs(arcs, links) - reached[links.target]
        return through + extra[links.target]

    def _through_empty(self, frame: Frame, extra: Costs) -> Costs:
        links = frame.empty
        if len(links.source) == 0:
            return extra
        while True:
            worse = self._worse(frame, links, self.graph.empty, frame.cost, extra)
            before = extra
            extra = extra.copy()
            np.minimum.at(extra, links.source, worse)
            if np.array_equal(extra, before):
                break
        frame.empty = links.keep(worse <= self.beam)
        return extra


def _compact(before: Frame, frame: Frame, extra: Costs) -> Costs:
    """Drop the tokens of a frame that no path within the beam passes; their costs that stay."""
    kept = extra < np.inf
    number = np.cumsum(kept, dtype=np.int32) - 1
    frame.utterance, frame.state = frame.utterance[kept], frame.state[kept]
    frame.cost = frame.cost[kept]
    for links in (frame.empty, frame.emitting):
        if links is not None:
            links.source = number[links.source]
    frame.empty.target = number[frame.empty.target]
    if before.emitting is not None:
        links = before.emitting.keep(kept[before.emitting.target])
        links.target = number[links.target]
        before.emitting = links
    return extra[kept]


def lattices(
    frames: Sequence[Frame],
    graph: SearchGraph,
    lengths: Indices,
    lattice_beam: float,
    acoustic_scale: float,
) -> list[Lattice | None]:
    """The lattices of pruned frames, one an utterance; acoustic costs are no longer scaled.

    None for an utterance without a path to its last frame.
    """
    base = np.cumsum([0] + [len(frame.cost) for frame in frames])
    parts = [_rows(frame, graph, base, time) for time, frame in enumerate(frames)]
    source, target = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    arcs = np.concatenate([part[2] for part in parts])
    arcs["acoustic"] /= acoustic_scale
    utterance = np.concatenate([frame.utterance for frame in frames])
    final = np.concatenate(
        [_finals(frame, graph, lengths == time, lattice_beam) for time, frame in enumerate(frames)]
    )
    place = _order(frames, base)
    used = np.zeros(len(utterance), bool)
    used[source] = used[target] = used[final < np.inf] = True
    used[np.searchsorted(frames[0].utterance, np.arange(len(lengths)))] = True  # their starts
    tokens = np.flatnonzero(used)
    tokens = tokens[np.lexsort((place[tokens], utterance[tokens]))]
    first = np.searchsorted(utterance[tokens], np.arange(len(lengths) + 1))
    rank = np.zeros(len(utterance), np.int64)
    rank[tokens] = np.arange(len(tokens)) - first[utterance[tokens]]
    owner = utterance[source]
    order = np.lexsort((rank[source], owner))
    bounds = np.searchsorted(owner[order], np.arange(len(lengths) + 1))
    source, target, arcs = rank[source[order]], rank[target[order]], arcs[order]
    made: list[Lattice | None] = []
    for number in range(len(lengths)):
        mine = slice(bounds[number], bounds[number + 1])
        ends = final[tokens[first[number] : first[number + 1]]]
        one = _lattice(source[mine], target[mine], arcs[mine], ends)
        made.append(one if np.isfinite(ends).any() else None)
    return made


def _lattice(source: Indices, target: Indices, arcs: NDArray[np.void], final: Costs) -> Lattice:
    arcs = arcs.copy()
    arcs["next"] = target
    counts = np.bincount(source, minlength=len(final))
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    weights = np.full((len(final), 2), np.inf, np.float32)
    weights[final < np.inf] = 0.0
    weights[:, 0] = final
    return Lattice(weights, first, arcs)


def _rows(
    frame: Frame, graph: SearchGraph, base: Indices, time: int
) -> tuple[Indices, Indices, NDArray[np.void]]:
    """Links of a frame: tokens at both ends, numbered through all frames, and lattice arcs."""
    sources, targets, found = [], [], []
    for links, arcs, step in ((frame.empty, graph.empty, 0), (frame.emitting, graph.emitting, 1)):
        if links is None:
            continue
        rows = np.zeros(len(links.arc), ARC)
        rows["ilabel"], rows["olabel"] = arcs.label[links.arc], arcs.word[links.arc]
        rows["graph"], rows["acoustic"] = arcs.cost[links.arc], links.acoustic
        sources.append(links.source + base[time])
        targets.append(links.target + base[time + step])
        found.append(rows)
    return np.concatenate(sources), np.concatenate(targets), np.concatenate(found)


def _finals(
    frame: Frame, graph: SearchGraph, ending: NDArray[np.bool_], lattice_beam: float
) -> Costs:
    """Cost of ending at each token, inf where no path within the lattice beam ends."""
    if not ending.any():
        return np.full(len(frame.cost), np.inf)
    final, best, _ = ending_costs(frame, graph, ending)
    limit = best[frame.utterance] + lattice_beam + _SLACK
    return np.where(frame.cost + final <= limit, final, np.inf)


def _order(frames: Sequence[Frame], base: Indices) -> Indices:
    """int64 [tokens]: by this, links lead upwards: by frame, then by empty links.

    Raises:
        UserError: links without speech lead round.
    """
    depth = np.zeros(base[-1], np.int64)
    source = np.concatenate([f.empty.source + b for f, b in zip(frames, base, strict=False)])
    target = np.concatenate([f.empty.target + b for f, b in zip(frames, base, strict=False)])
    sizes = np.diff(base)
    for _ in range(sizes.max(initial=0) + 1):
        deeper = depth.copy()
        np.maximum.at(deeper, target, depth[source] + 1)
        if np.array_equal(deeper, depth):
            break
        depth = deeper
    else:
        raise UserError(
            "the graph has a cycle without speech that costs less than decoding.lattice_beam",
            fix="Look for words without phones",
        )
    return np.repeat(np.arange(len(frames)), sizes) * (depth.max(initial=0) + 1) + depth
