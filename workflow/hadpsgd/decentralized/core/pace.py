"""How slow a learner is beside the others, told by the numbers of the blocks that it claims.

A run ends with its last block. A learner k times slower than the others that claims one near the
end makes the run longer by up to k gradients, while the others could do that block in one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

SURE = 4
"""A slow learner asks how far the others are so many times earlier than it has to know."""
SLOW = 3
"""Times slower than the mean from which a learner leaves blocks to the others near the end."""


class Pace:
    """Of one learner.

    Args:
        learners: how many share the work.
        now: tells the time, in seconds.
    """

    def __init__(self, learners: int, now: Callable[[], float]) -> None:
        self.learners = learners
        self.now = now
        # a claim ahead may follow the one before it at once: two intervals, not one
        self._claims: deque[tuple[int, float, int]] = deque(maxlen=3)
        self._until: float | None = None

    def claimed(self, place: int, *, count: int, moment: float) -> None:
        """A block, the next that nobody had; places are those of all learners' blocks in order.

        `count`: it is the last of so many that were claimed at once; `moment`: when it was next.
        """
        self._claims.append((place, moment, count))
        self._until = None

    @property
    def known(self) -> bool:
        """Whether there were two claims."""
        return len(self._claims) > 1

    def asks(self, *, total: int, held: int) -> bool:
        """Whether `leaves` is to be asked: at the second claim, and by slow learners near the end.

        How near it is they tell from their own claims; the others may have become faster since.
        """
        if not self.known:
            return bool(self._claims)
        last, then, _ = self._claims[-1]
        if not self._slow(last):
            return False
        blocks, seconds = self._interval(last)
        since = SURE * (held + 1 + (self.now() - then) / seconds) if seconds else math.inf
        return total - last < since * blocks

    def leaves(self, *, taken: int, total: int, held: int) -> bool:
        """Whether this learner, which holds `held` blocks, leaves what is not `taken` to others.

        A slow one does where they will have done it before it has done one block more; for as long
        as it would have needed: they may have died.
        """
        blocks, seconds = self._interval(taken)
        if not self._slow(taken) or total - taken >= (held + 1) * blocks:
            self._until = None
            return False
        if self._until is None:
            self._until = self.now() + (held + 1) * seconds
        return self.now() < self._until

    def share(self, *, total: int, gradient: float) -> float:
        """Of the blocks that are left by now, those that a learner does with such gradients."""
        if not self.known:
            return (total - sum(last + 1 for last, _, _ in self._claims)) / self.learners
        last, then, _ = self._claims[-1]
        blocks, seconds = self._interval(last)
        rate = blocks / seconds if seconds else 0.0
        left = total - last - 1 - rate * (self.now() - then)
        return left / max(rate * gradient, self.learners)

    def _slow(self, taken: int) -> bool:
        """Whether it is much slower than the mean; not all can be."""
        return self._interval(taken)[0] >= SLOW * self.learners

    def _interval(self, taken: int) -> tuple[float, float]:
        """From one block of its own to the next: blocks that all claim, seconds."""
        (first, then, _), *later = self._claims
        last, now, _ = later[-1] if later else (taken, self.now(), 1)
        count = max(1, sum(blocks for _, _, blocks in later))
        return (last - first) / count, (now - then) / count
