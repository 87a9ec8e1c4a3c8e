"""Whether ranks live, from the signs that they give (`pulse` has their side).

A dead process is known by its end. One that hangs looks alive to everybody else: the kernel accepts
connections for it. Who started it sees that it gives no sign, and can end it for good; no other
process can be sure that it does not wake up again.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

from hadpsgd.training.pulse import LEAVES, WELL

PATIENCE = 10
"""A rank whose gradient does not end, or that is about to end, is given so many times the limit."""
OWN_SECONDS = 1.0
"""Longer than this between two looks we were stopped ourselves, and the ranks perhaps with us."""


class _Rank:
    """A pipe, and when something came out of it."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe
        self.heard: float | None = None
        """Its last sign; None: it has not begun yet."""
        self.well = 0.0
        """Its last sign that the training thread gets on."""
        self.leaves = False
        """Whether it has said that it is about to end."""


class Vigil:
    """Watches ranks.

    Args:
        limit: seconds without a sign; 0: none is watched.
        clock: seconds.
    """

    def __init__(self, limit: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self.clock = clock
        self._ranks: dict[int, _Rank] = {}
        self._looked = clock()
        self._now = 0.0
        """Seconds that were watched."""

    def open(self, number: int) -> int:
        """A pipe for a rank that is about to start: the end that it inherits; to be closed here."""
        self.close(number)
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        self._ranks[number] = _Rank(reading)
        return writing

    def close(self, number: int) -> None:
        """It has ended."""
        rank = self._ranks.pop(number, None)
        if rank is not None:
            os.close(rank.pipe)

    def silent(self) -> dict[int, str]:
        """Ranks that are as good as dead, and in a few words why."""
        now = self.clock()
        self._now += min(now - self._looked, OWN_SECONDS)
        self._looked = now
        return {n: why for n, rank in self._ranks.items() if (why := self._why(rank))}

    def _why(self, rank: _Rank) -> str:
        with contextlib.suppress(BlockingIOError):
            while signs := os.read(rank.pipe, 1 << 12):
                rank.heard = self._now
                if WELL in signs:
                    rank.well = self._now
                rank.leaves |= LEAVES in signs
        if rank.heard is None:
            return ""
        limit = self.limit * (PATIENCE if rank.leaves else 1)
        if self._now - rank.heard > limit:
            return f"no sign of life for {limit:g} s"
        if not rank.leaves and self._now - rank.well > PATIENCE * self.limit:
            return f"a gradient that did not end within {PATIENCE * self.limit:g} s"
        return ""
