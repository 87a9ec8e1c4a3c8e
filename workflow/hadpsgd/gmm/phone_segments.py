"""Phones of an alignment: where they begin and how long they are (Kaldi's SplitToPhones)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hadpsgd.gmm.transition_model import TransitionModel


class Segments(NamedTuple):
    """Phones of an utterance in order.

    phones, starts, lengths: int [phones], the latter two in frames; whole: the last phone is
    complete.
    """

    phones: NDArray[np.int32]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    whole: bool

    def by_frame(self) -> NDArray[np.int64]:
        """int64 [frames]: the number of the phone that a frame belongs to."""
        return np.repeat(np.arange(len(self.phones)), self.lengths)


def segments(model: TransitionModel, ids: NDArray[np.int32]) -> Segments:
    """Split transition-ids [frames] at the ends of phones.

    Self-loops may come before the transition that leaves their state or after it, as in graphs
    compiled with --reorder=true.
    """
    if not len(ids):
        nothing = np.zeros(0, np.int64)
        return Segments(nothing.astype(np.int32), nothing, nothing, True)
    loops, final = model.is_self_loop[ids], model.is_final[ids]
    if _reordered(model, ids, loops):
        # the end of a phone is the last self-loop after the transition that leaves it
        last_exit = np.maximum.accumulate(np.where(loops, -1, np.arange(len(ids))))
        ends = final[np.maximum(last_exit, 0)] & (last_exit >= 0)
        ends[:-1] &= ~loops[1:]
    else:
        ends = final & ~loops
    whole = bool(ends[-1])
    ends[-1] = True
    bounds = np.concatenate([[0], np.flatnonzero(ends) + 1])
    return Segments(model.phone[ids[bounds[:-1]]], bounds[:-1], np.diff(bounds), whole)


def _reordered(model: TransitionModel, ids: NDArray[np.int32], loops: NDArray[np.bool_]) -> bool:
    states = model.state_of_id[ids]
    changes = np.flatnonzero(states[1:] != states[:-1])
    after, before = loops[changes], loops[changes + 1]
    telling = np.flatnonzero(after | before)
    if len(telling):
        return bool(after[telling[0]])
    return bool(loops[-1] and not loops[0])
