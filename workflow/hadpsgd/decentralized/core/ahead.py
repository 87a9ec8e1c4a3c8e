"""How many blocks a learner claims at once, and how far ahead, told by its way to the store.

A claim of k blocks takes 2 + k round trips: one for k numbers, one to tell, and one to own each.
It goes on beside gradients. Over a slow link a claim of one takes longer than a gradient, and the
gradients wait; of several at once, each takes less. Blocks that are claimed ahead are done later
than others could do them: so no more than are needed, and near the end no more than a share of
what is left.
"""

from __future__ import annotations

import math
import statistics
from collections import deque

SHARED_TRIPS = 2
"""Round trips of a claim, however many blocks it is of; one more for each block."""
QUICK = 0.5
"""Of a gradient: a claim of one block that takes no longer is made one ahead."""
FILLED = 0.8
"""Of the gradients' time, at most, that their claims take."""
MOST = 16
"""Blocks at once: where a round trip takes longer than a gradient, more would help little."""
SEEN = 5
"""Measurements, of which the median counts."""


class Ahead:
    """Of one learner."""

    def __init__(self) -> None:
        self._trips: deque[float] = deque(maxlen=SEEN)
        self._gradients: deque[float] = deque(maxlen=SEEN)

    def asked(self, seconds: float) -> None:
        """A call of the store took so long."""
        self._trips.append(seconds)

    def computed(self, seconds: float) -> None:
        """A gradient took so long, without what it waited for a block."""
        self._gradients.append(seconds)

    @property
    def slow(self) -> bool:
        """Whether claims of one block take so long that gradients would wait for them."""
        return self._claim(1) > QUICK * self._gradient

    @property
    def at_once(self) -> int:
        """Blocks of a claim, so many that it takes less time than their gradients."""
        if not self.slow:
            return 1
        trip = self._trip
        spare = FILLED * self._gradient - trip
        return min(MOST, math.ceil(SHARED_TRIPS * trip / spare)) if spare > 0 else MOST

    @property
    def blocks(self) -> int:
        """A claim begins when fewer are ready: those last for as long as it takes."""
        if not self.slow:
            return 1
        claim = self._claim(self.at_once) + self._trip  # another call may be on its way
        return math.ceil(claim / max(self._gradient, self._trip))

    def spare(self, *, share: float, held: int) -> int:
        """Blocks that this learner can claim more, if it does so many of those that are left.

        With no more than that it is not the last. What it holds it does before, or it waits for
        as long as a claim takes.
        """
        return max(0, math.floor(share) - max(held, self.blocks))

    @property
    def gradient_seconds(self) -> float:
        """The median, 0 where it is not known."""
        return statistics.median(self._gradients) if self._gradients else 0.0

    @property
    def _trip(self) -> float:
        return statistics.median(self._trips) if self._trips else 0.0

    @property
    def _gradient(self) -> float:
        return self.gradient_seconds or math.inf

    def _claim(self, blocks: int) -> float:
        return (SHARED_TRIPS + blocks) * self._trip
