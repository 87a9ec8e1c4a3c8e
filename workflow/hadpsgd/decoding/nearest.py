"""The path of a lattice that comes nearest to some words, to find their times."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hadpsgd.decoding.forward_backward import frames_before
from hadpsgd.decoding.lattice import Lattice, Path, Scaling, arc_costs, final_costs, path_of

_EDIT = 1e5  # above the cost of any path: first fewest edits, then least cost
_ROUNDED = 1e-6


def nearest_path(
    lattice: Lattice, words: Sequence[int], scaling: Scaling, silent: Collection[int] = ()
) -> Path:
    """The best of the paths with the fewest edits to some words, as if it said them.

    Its words are these, with its own silent ones between them. A word that it lacks begins where
    it says another instead, or between its words.

    Args:
        lattice: with one path at least.
        words: to be said, none of them silent.
        scaling: the cost of paths.
        silent: words of paths that do not count.
    """
    table = _Table(lattice, np.array(words, np.int64))
    labels = lattice.arcs["olabel"].tolist()
    prices = arc_costs(lattice, [scaling])[0]
    costs = prices.tolist()
    bounds = lattice.first.tolist()
    for state in range(lattice.num_states):
        table.pass_over(state)
        for arc in range(bounds[state], bounds[state + 1]):
            label = labels[arc]
            counts = label > 0 and label not in silent
            table.follow(arc, cost=costs[arc] + _EDIT * counts)
            if counts:
                table.say(arc, label=label, cost=costs[arc])
    ends = final_costs(lattice, [scaling])[0]
    state = int((table.cost[:, -1] + ends).argmin())
    chosen, places = table.trace(state)
    cost = float(prices[chosen].sum() + ends[state])
    graph, acoustic = (float(value) for value in lattice.final[state])
    path = path_of(lattice, chosen, cost=cost, graph=graph, acoustic=acoustic)
    own = zip(path.words.tolist(), path.word_frames.tolist(), strict=True)
    # those that are said come before silent ones of the same frame, and stay in their order
    found = [(frame, 0, word) for word, frame in zip(words, places, strict=True)]
    found += [(frame, 1, word) for word, frame in own if word in silent]
    found.sort(key=lambda each: each[:2])
    return replace(
        path,
        words=np.array([word for *_, word in found], np.int32),
        word_frames=np.array([frame for frame, *_ in found], np.int32),
    )


@dataclass
class _Table:
    """Costs of states of a lattice and numbers of words said there, and how each is reached."""

    lattice: Lattice
    words: NDArray[np.int64]

    def __post_init__(self) -> None:
        shape = self.lattice.num_states, len(self.words) + 1
        self.cost = np.full(shape, np.inf)
        self.cost[0, 0] = 0.0
        self.arc = np.full(shape, -1, np.int64)  # -1: none
        self.said = np.zeros(shape, np.int64)
        self.missed = _EDIT * np.arange(shape[1])
        self.sources: list[int] = self.lattice.sources.tolist()
        self.targets: list[int] = self.lattice.arcs["next"].tolist()

    def pass_over(self, state: int) -> None:
        """Words that nothing stands for."""
        row = self.cost[state]
        least = np.minimum.accumulate(row - self.missed) + self.missed
        self._offer(state, np.where(least < row - _ROUNDED, least, np.inf), -1, 1)

    def follow(self, arc: int, *, cost: float) -> None:
        """An arc beside the words."""
        self._offer(self.targets[arc], self.cost[self.sources[arc]] + cost, arc, 0)

    def say(self, arc: int, *, label: int, cost: float) -> None:
        """An arc whose word stands for the next one."""
        row = np.full(len(self.missed), np.inf)
        row[1:] = self.cost[self.sources[arc], :-1] + cost + _EDIT * (self.words != label)
        self._offer(self.targets[arc], row, arc, 1)

    def _offer(self, state: int, costs: NDArray[np.float64], arc: int, said: int) -> None:
        better = costs < self.cost[state]
        self.cost[state, better] = costs[better]
        self.arc[state, better] = arc
        self.said[state, better] = said

    def trace(self, state: int) -> tuple[NDArray[np.int64], list[int]]:
        """Arcs of the best path to a state with all words said, and the frames of these."""
        frames = frames_before(self.lattice)
        chosen: list[int] = []
        places: list[int] = []
        left = len(self.words)
        while state or left:
            arc, said = int(self.arc[state, left]), int(self.said[state, left])
            left -= said
            if arc >= 0:
                chosen.append(arc)
                state = self.sources[arc]
            if said:
                places.append(int(frames[state]))
        return np.array(chosen[::-1], np.int64), places[::-1]
