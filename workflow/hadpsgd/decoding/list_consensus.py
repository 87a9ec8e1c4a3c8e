"""Minimum Bayes risk among the sequences of an n-best list, under many weights at once.

The recursion is that of `decoding/consensus.py`, for sequences whose silent words are left out
before. Sequences of a list meet nowhere, so the slots' words with which one is aligned do not
depend on weights: aligned once, they vote with their probability under each of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hadpsgd.decoding.consensus import BEAM, DELTA, ROUNDS, SURE, Consensus, slots_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_CELLS = 1 << 24  # of sequences, words and slots that are aligned at once
_TAKEN, _PASSED = 1, 2  # how a cell is left: with a slot and its word, or with a slot of no word
_DIGITS = 10  # of probabilities that tell words apart: sums in another order differ below


@dataclass(frozen=True)
class Alignment:
    """Sequences with slots: int64 [sequences, slots] which word stands for each (0: none), and
    float64 [sequences] the edits of each."""

    words: Ints
    edits: Floats


class Sequences:
    """Sequences of a list without silent words, each once."""

    def __init__(self, words: Sequence[Sequence[int]], silent: Collection[int] = ()) -> None:
        numbers: dict[tuple[int, ...], int] = {}
        heard = [tuple(word for word in said if word not in silent) for said in words]
        self.number = np.array([numbers.setdefault(said, len(numbers)) for said in heard], np.int64)
        """Of each sequence of the list which of these it is."""
        self.heard = list(numbers)
        longest = max(map(len, self.heard), default=0)
        self._size = np.array([len(said) for said in self.heard], np.int64)
        self._words = np.full((len(self.heard), longest), -1, np.int64)
        for row, said in zip(self._words, self.heard, strict=True):
            row[: len(said)] = said

    def shares(self, costs: Floats, beam: float) -> Floats:
        """float64 [weights, sequences]: probabilities.

        Args:
            costs: float64 [weights, sequences of the list], in nats.
            beam: what costs more above the best has no share.
        """
        mass = _mass(costs, beam)
        summed = np.zeros((len(costs), len(self.heard)))
        np.add.at(summed.T, self.number, mass.T)
        return summed / summed.sum(1, keepdims=True)

    def aligned(self, slots: Ints) -> Alignment:
        """With slots (0: of no word), at the fewest edits; of equal ways as `Edits` takes them."""
        cells = max(1, (self._words.shape[1] + 1) * (len(slots) + 1))
        step = max(1, _CELLS // cells)
        parts = [
            _aligned(self._words[low : low + step], self._size[low : low + step], slots)
            for low in range(0, len(self.heard), step)
        ]
        return Alignment(
            np.concatenate([part.words for part in parts]),
            np.concatenate([part.edits for part in parts]),
        )


def _mass(costs: Floats, beam: float) -> Floats:
    """Probabilities that do not sum to 1; 0 beyond the beam."""
    above = costs - costs.min(1, keepdims=True)
    return np.where(above <= beam, np.exp(-above), 0.0)


def _aligned(words: Ints, size: Ints, slots: Ints) -> Alignment:
    """Sequences, padded, with slots."""
    passed = np.concatenate([[0.0], np.cumsum(slots > 0)])
    before = np.tile(passed, (len(words), 1))
    ends = before[:, -2:].copy()  # after each sequence's last word: without and with the last slot
    how = np.full((words.shape[1] + 1, *before.shape), _PASSED, np.int8)
    for place in range(words.shape[1]):
        replaced = np.full(before.shape, np.inf)
        replaced[:, 1:] = before[:, :-1] + (words[:, place, None] != slots)
        inserted = before + (1.0 + DELTA)
        before = np.minimum.accumulate(np.minimum(replaced, inserted) - passed, axis=1) + passed
        # sums of `accumulate` are rounded; words before none, as a slot's place says more
        how[place + 1][inserted <= before + SURE] = 0
        how[place + 1][(replaced <= inserted) & (replaced <= before + SURE)] = _TAKEN
        ends = np.where((size == place + 1)[:, None], before[:, -2:], ends)
    # as where paths of a lattice end: none of the words stands in the last slot if that costs less
    # or as much
    last = len(slots) - (ends[:, 0] <= ends[:, 1] + SURE)
    return Alignment(_walked_back(words, size, last, how), ends[:, 1])


def _walked_back(words: Ints, size: Ints, last: Ints, how: NDArray[np.int8]) -> Ints:
    """From the last word and slot of each sequence to the first: which word stands where."""
    stands = np.zeros((len(words), how.shape[2] - 1), np.int64)
    rows, place, slot = np.arange(len(words)), size.copy(), last.copy()
    while len(rows := rows[place[rows] > 0]):
        way = how[place[rows], rows, slot[rows]]
        taken = rows[way == _TAKEN]
        stands[taken, slot[taken] - 1] = words[taken, place[taken] - 1]
        slot[rows] -= way > 0
        place[rows] -= way != _PASSED
    return stands


def list_consensus(
    words: Sequence[Sequence[int]], costs: Floats, silent: Collection[int] = ()
) -> list[Consensus]:
    """Under each of some weights the words of which a list's sequences expect the fewest errors,
    from those of the best sequence on.

    Args:
        words: of the sequences; at least one.
        costs: float64 [weights, sequences], in nats.
        silent: words that do not count.

    Returns:
        No risk is an upper bound: each is the expectation.
    """
    near = np.flatnonzero(_mass(costs, BEAM).any(0)).tolist()
    sequences, costs = Sequences([words[i] for i in near], silent), costs[:, near]
    shares = sequences.shares(costs, BEAM)
    said: list[tuple[int, ...]] = [sequences.heard[i] for i in sequences.number[costs.argmin(1)]]
    found: list[Consensus] = [Consensus((), (), 0.0)] * len(said)
    waiting = list(range(len(said)))
    for left in reversed(range(ROUNDS)):
        changed: list[int] = []
        for now, places in _alike(said, waiting).items():
            slots = slots_of(now)
            aligned = sequences.aligned(slots)
            own, most, best = _votes(aligned.words, shares[places], slots)
            better = most > own + SURE
            risk = shares[places] @ aligned.edits
            for row, i in enumerate(places):
                if left and better[row].any():
                    new = np.where(better[row], best[row], slots)
                    said[i] = tuple(new[new > 0].tolist())
                    changed.append(i)
                else:
                    sure = np.minimum(own[row, 1::2], 1.0)
                    found[i] = Consensus(now, tuple(sure.tolist()), float(risk[row]))
        waiting = changed
    return found


def _alike(
    said: Sequence[tuple[int, ...]], places: Sequence[int]
) -> dict[tuple[int, ...], list[int]]:
    """Which of some places say the same words."""
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for i in places:
        groups[said[i]].append(i)
    return groups


def _votes(stands: Ints, shares: Floats, slots: Ints) -> tuple[Floats, Floats, Ints]:
    """[weights, slots]: the probability of the slot's own word, the highest of any word, and which
    word that is."""
    shape = len(shares), len(slots)
    own, most, best = np.zeros(shape), np.zeros(shape), np.zeros(shape, np.int64)
    for slot, word in enumerate(slots):
        names, which = np.unique(stands[:, slot], return_inverse=True)
        gamma = shares @ (which[:, None] == np.arange(len(names)))
        chosen = np.round(gamma, _DIGITS).argmax(1)
        most[:, slot], best[:, slot] = gamma[np.arange(len(gamma)), chosen], names[chosen]
        own[:, slot] = gamma[:, names == word].sum(1)
    return own, most, best


def list_confidences(
    words: Sequence[Sequence[int]],
    costs: Floats,
    said: Sequence[int],
    silent: Collection[int] = (),
) -> list[float]:
    """Probability of each of some words, 0 .. 1, among a list's sequences: how often they are said
    where these are; 1 for silent ones. Arguments as `list_consensus`, of one weight."""
    sequences = Sequences(words, silent)
    slots = slots_of([word for word in said if word not in silent])
    shares = sequences.shares(costs[None], np.inf)
    own, _, _ = _votes(sequences.aligned(slots).words, shares, slots)
    sure = iter(np.minimum(own[0, 1::2], 1.0).tolist())
    return [1.0 if word in silent else next(sure) for word in said]
