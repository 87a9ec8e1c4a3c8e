"""What a learner can tell of its mixes without asking anybody: who lags behind whom, how far apart.

The distance of the learners from their mean is estimated from a single mix. If their deviations
from it are independent and of one size s, a mix with shares t_j moves a learner's weights by
delta = sum_j t_j (x_j - x_i), and E|delta|^2 = (sum_j t_j^2 + (sum_j t_j)^2) s^2. Deviations of
neighbours on a ring are alike, so there it estimates the distance from neighbours, which is less.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor
from torch.linalg import vector_norm

from hadpsgd.decentralized.core.events import Mix
from hadpsgd.decentralized.core.note import Note


@dataclass
class Observation:
    """Since the last one."""

    distance: float | None = None
    """Estimated distance of a learner from the mean of all, over the norm of its weights."""
    lags: dict[int, Counter[int]] = field(default_factory=dict)
    """Partner -> (own updates, less those in the partner's snapshot) -> number of mixes."""


class Observer:
    """Told of mixes by one thread, asked by another. A distance is taken once for each asking."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found = Observation()
        self._wanted = True

    def exchanged(self, own: Note, others: Mapping[int, Note]) -> None:
        """Snapshots of other nodes have come."""
        with self._lock:
            for node, note in others.items():
                self._found.lags.setdefault(node, Counter())[own.steps - note.steps] += 1

    def mixed(self, mix: Mix, delta: Tensor, weights: Tensor) -> None:
        """A mix is about to be added to the weights."""
        shares = [share for _, share, _ in mix.takes]
        if self._wanted and shares:
            scale = math.sqrt(sum(share**2 for share in shares) + sum(shares) ** 2)
            self._found.distance = float(vector_norm(delta) / vector_norm(weights)) / scale
            self._wanted = False

    def averaged(self, average: Tensor, weights: Tensor) -> None:
        """The mean of all is about to take the place of the weights: no estimate."""
        if self._wanted:
            distance = vector_norm(weights - average) / vector_norm(average)
            self._found.distance = float(distance)
            self._wanted = False

    def collect(self) -> Observation:
        """What there was to see since the last call."""
        with self._lock:
            found, self._found = self._found, Observation()
            self._wanted = True
        return found
