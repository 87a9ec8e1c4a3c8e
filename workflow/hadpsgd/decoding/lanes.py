"""Utterances in the lanes of a search: where one ends, the next begins."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from hadpsgd.decoding.scores import Matrix, Scores
from hadpsgd.decoding.search_graph import Indices

_BLOCK = 8  # frames of which scores are laid side by side at a time

_NONE = np.zeros(0, np.int64)


class Lanes:
    """Utterances that are searched side by side, a new one as soon as a lane is free.

    Frames are counted through the whole search. An utterance of n frames that begins at frame b has
    its last tokens at frame b + n; the next one begins in its lane at the frame after that.

    Args:
        scores: of each utterance, float32 [frames, columns] with at least one frame; taken when
            there is a lane for them, and dropped where the utterance ends.
        count: number of lanes.
        room: bytes of scores at a time; those of a single utterance may be more.

    Attributes:
        number: int64 [lanes], the utterance that each lane has, or had last; -1 for none yet.
        until: int64 [lanes], the frame at which it ends.
        utterances: how many there were so far.
        soonest: the next frame at which one ends.
    """

    def __init__(self, scores: Iterable[Scores], *, count: int, room: float = np.inf) -> None:
        self._coming = iter(scores)
        self._next = next(self._coming, None)
        self._room = room
        self._scores: list[Scores | None] = [None] * count
        self._free = list(range(count))[::-1]
        self._begin = np.zeros(count, np.int64)
        self.number, self.until = np.full(count, -1), np.full(count, -2)
        self.utterances = 0
        self.soonest = self._latest = -1
        width = 0 if self._next is None else self._next.shape[1]
        self._block = np.zeros((count, _BLOCK, width), np.float32)

    def going_on(self, time: int) -> bool:
        """Whether any utterance goes on after this frame, or is still to come."""
        return self._next is not None or time < self._latest

    def enter(self, time: int) -> Indices:
        """Let utterances begin at a frame, as many as there are free lanes and room for; the lanes
        that they take."""
        if time - 1 != self.soonest and time:
            return _NONE
        for lane in (self.until == time - 1).nonzero()[0].tolist():
            self._scores[lane] = None
            self._free.append(lane)
        entered = []
        while self._next is not None and self._free and self._fits(self._next):
            lane = self._free.pop()
            self._scores[lane], self._begin[lane] = self._next, time
            self.until[lane] = time + len(self._next)
            self._next = next(self._coming, None)
            entered.append(lane)
            self._lay(lane, time)
        if entered:
            self.number = self.number.copy()  # frames keep what it was
            self.number[entered] = np.arange(self.utterances, self.utterances + len(entered))
            self.utterances += len(entered)
        self._latest = int(self.until.max())
        self.soonest = int(self.until[self.until >= time].min(initial=self._latest))
        return np.array(entered, np.int64)

    def at(self, time: int, lanes: Indices, columns: NDArray[np.integer]) -> Matrix:
        """Scores at a frame, which follows the last one asked for, in these lanes and columns;
        `lanes` is overwritten."""
        place = time % _BLOCK
        if place == 0:
            for lane in (self.until > time).nonzero()[0].tolist():
                self._lay(lane, time)
        _, height, width = self._block.shape
        lanes *= height * width
        lanes += columns
        return self._block.ravel()[place * width :].take(lanes)

    def _fits(self, scores: Scores) -> bool:
        used = [each.nbytes for each in self._scores if each is not None]
        return not used or sum(used) + scores.nbytes <= self._room

    def _lay(self, lane: int, time: int) -> None:
        """Lay out an utterance's scores from a frame to the block's end."""
        scores, place = self._scores[lane], time % _BLOCK
        assert scores is not None
        first = time - int(self._begin[lane])
        some = scores[first : first + _BLOCK - place]
        self._block[lane, place : place + len(some)] = some
