"""Equal alignment: the frames of an utterance spread over a random path of its graph.

Kaldi's align-equal-compiled. Where paths part, Kaldi's graphs have one arc for each transition-id
that may come next, and one more where the utterance may end; all are equally likely. Silence,
whose first state may be left in three ways, is thus begun three times as often as a word that
follows without one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from hadpsgd.gmm.training_graph import NO_ID, START, Graph

_TRIES = 10
Step = tuple[int, int]
"""A state that is entered, and the transition-id by which it is left."""


class _Steps:
    """The steps of a graph and what may follow them."""

    def __init__(self, graph: Graph) -> None:
        self.loops: dict[int, int] = {}
        self.ends = {(int(row["source"]), int(row["id"])) for row in graph.ends}
        self._targets: dict[Step, list[int]] = defaultdict(list)
        leaving: dict[int, set[int]] = defaultdict(set)
        for state, tid in self.ends:
            leaving[state].add(tid)
        for source, target, tid in graph.arcs[["source", "target", "id"]].tolist():
            if source == target:
                self.loops[source] = tid
            else:
                self._targets[source, tid].append(target)
                leaving[source].add(tid)
        self._leaving = {state: sorted(ids) for state, ids in leaving.items()}
        self.start = (START, NO_ID)

    def after(self, steps: Iterable[Step]) -> dict[int, set[Step]]:
        """By transition-id the steps that may follow any of `steps`."""
        found: dict[int, set[Step]] = {}
        for step in steps:
            for state in self._targets.get(step, ()):
                for tid in self._leaving.get(state, ()):
                    found.setdefault(tid, set()).add((state, tid))
        return found


def equal_alignment(
    graph: Graph, frames: int, random: np.random.Generator
) -> NDArray[np.int32] | None:
    """Transition-ids of a random path, its states about equally long; None if none is that short.

    int32 [frames], in Kaldi's order. After ten random paths that are too long comes the shortest.
    """
    if graph.is_empty:
        return None
    steps = _Steps(graph)
    for attempt in range(_TRIES + 1):
        path = _walk(steps, frames, random) if attempt < _TRIES else _shortest(steps)
        if path is not None and len(path) <= frames:
            break
    else:
        return None
    loops = np.array([steps.loops.get(state, 0) for state, _ in path], np.int32)
    # what exceeds a frame a state goes to the states that have a self-loop
    spare, holding = frames - len(path), np.flatnonzero(loops)
    if spare and not len(holding):
        return None
    lengths = np.ones(len(path), np.int64)
    if spare:
        lengths[holding] += spare // len(holding)
        lengths[holding[: spare % len(holding)]] += 1
    ids = np.repeat(loops, lengths)
    ids[np.cumsum(lengths) - lengths] = [tid for _, tid in path]
    return ids


def _walk(steps: _Steps, limit: int, random: np.random.Generator) -> list[Step] | None:
    """A random path; None if it is longer than `limit`, or leads nowhere."""
    path: list[Step] = []
    # all steps that the transition-ids so far may have led to: Kaldi's graphs are deterministic
    here = {steps.start}
    while len(path) <= limit:
        following = steps.after(here)
        labels = sorted(following)
        may_end = not here.isdisjoint(steps.ends)
        if not labels and not may_end:
            return None
        choice = int(random.integers(len(labels) + may_end))
        if choice == len(labels):
            return path
        here = following[labels[choice]]
        path.append(next(iter(here)))
    return None


def _shortest(steps: _Steps) -> list[Step] | None:
    came: dict[Step, Step] = {steps.start: steps.start}
    queue = [steps.start]
    for step in queue:  # grows while it is read
        if step in steps.ends:
            path: list[Step] = []
            while step != steps.start:
                path.append(step)
                step = came[step]
            return path[::-1]
        for some in steps.after([step]).values():
            for following in sorted(some):
                if following not in came:
                    came[following] = step
                    queue.append(following)
    return None
