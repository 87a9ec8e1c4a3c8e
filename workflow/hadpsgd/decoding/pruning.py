"""What is in no path within the lattice beam goes from the tokens and links of a search (Kaldi's
lattice-faster-decoder, PruneActiveTokens)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hadpsgd.decoding.search_graph import Costs, SearchGraph
from hadpsgd.decoding.token_passing import INFINITE, Frame, Links

SLACK = 1e-6  # rounding of sums taken in another order
_GONE = np.array([-1], np.int32)


def ending_costs(frame: Frame, graph: SearchGraph) -> tuple[Costs, Costs, NDArray[np.bool_]]:
    """Of a frame at which utterances end: cost of ending at each token (inf where it may not), the
    best total of each lane, and in which of them no final state is reached.

    Where none of an utterance's tokens is final, all may end, at no cost.
    """
    lane = frame.lane
    assert frame.ends is not None
    final = np.where(frame.ends[lane], graph.final[frame.state], np.inf)
    best = np.full(len(frame.ends), np.inf)
    np.minimum.at(best, lane, frame.cost + final)
    partial = frame.ends & (best == np.inf)
    final[partial[lane]] = 0.0
    np.minimum.at(best, lane, frame.cost + final)
    return final, best, partial


class Pruner:
    """Prunes the frames of a search from the last one backwards.

    partial: utterances that reached no final state.
    """

    def __init__(self, graph: SearchGraph, lattice_beam: float) -> None:
        self.graph, self.beam = graph, lattice_beam + SLACK
        self.partial: set[int] = set()

    def prune(self, frames: Sequence[Frame], upto: int = 0) -> None:
        """Drop links, and tokens without any, from the last frame back to `upto`.

        All tokens of the last frame stay where their utterance goes on after it.
        """
        following: Costs | None = None
        number: NDArray[np.int32] | None = None
        for time in range(len(frames) - 1, upto - 1, -1):
            frame = frames[time]
            extra = self._ending(frame)
            if following is None:
                extra = np.minimum(extra, self._going_on(frame))
            elif frame.emitting is not None:
                frame.emitting = links = self._kept(frame.emitting, following, extra)
                if number is not None:
                    links.target = number.take(links.target)
            self._through_empty(frame, extra)
            number = _compact(frame, extra) if following is not None and time > 0 else None
            following = extra
        if upto > 0 and (before := frames[upto - 1].emitting) is not None:
            frames[upto - 1].emitting = _renumbered(before, number)

    def _ending(self, frame: Frame) -> Costs:
        """How much worse than the best path those are that end at each token."""
        if frame.ends is None:
            return INFINITE.repeat(frame.count)
        final, best, partial = ending_costs(frame, self.graph)
        self.partial.update(frame.number[partial].tolist())
        with np.errstate(invalid="ignore"):
            return np.where(final < np.inf, frame.cost + final - best[frame.lane], np.inf)

    def _going_on(self, frame: Frame) -> Costs:
        if frame.ends is None:
            return np.zeros(frame.count)
        return np.where(frame.ends[frame.lane], np.inf, 0.0)

    def _kept(self, links: Links, following: Costs, extra: Costs) -> Links:
        """Links in paths within the beam; lowers `extra`, how much worse paths through tokens are,
        to theirs."""
        worse = following.take(links.target)
        worse += links.worse
        kept = (worse <= self.beam).nonzero()[0]
        links = links.take(kept)
        np.minimum.at(extra, links.source, worse.take(kept))
        return links

    def _through_empty(self, frame: Frame, extra: Costs) -> None:
        links = frame.empty
        if len(links.source) == 0:
            return
        while True:
            worse = extra.take(links.target)
            worse += links.worse
            lower = (worse < extra.take(links.source)).nonzero()[0]
            if not len(lower):
                break
            np.minimum.at(extra, links.source.take(lower), worse.take(lower))
        frame.empty = links.take((worse <= self.beam).nonzero()[0])


def _compact(frame: Frame, extra: Costs) -> NDArray[np.int32] | None:
    """Drop the tokens of a frame that no path within the beam passes; the new number of each, -1
    for none; None if all stay."""
    kept = (extra < np.inf).nonzero()[0]
    if len(kept) == len(extra):
        return None
    number = _GONE.repeat(len(extra))
    number[kept] = np.arange(len(kept), dtype=np.int32)
    frame.bounds = kept.searchsorted(frame.bounds)
    if len(frame.cost):
        frame.state, frame.cost = frame.state.take(kept), frame.cost.take(kept)
    for links in (frame.empty, frame.emitting):
        if links is not None:
            links.source = number.take(links.source)
    frame.empty.target = number.take(frame.empty.target)
    return number


def _renumbered(links: Links, number: NDArray[np.int32] | None) -> Links:
    """Links into tokens that stay, by their new numbers."""
    if number is None:
        return links
    links.target = number.take(links.target)
    stays = links.target >= 0
    return links if stays.all() else links.take(stays.nonzero()[0])
