"""How far the work is and how long it may still take, in a line now and then."""

from __future__ import annotations

import time
from collections.abc import Mapping

from hadpsgd.progress import Ticker, length, time_left


class Left:
    """Work in seconds of audio times the weights of the steps that it passes."""

    def __init__(self, total: float, steps: Mapping[str, float]) -> None:
        """`total` is the seconds of audio of all recordings."""
        self._total = max(total, 1e-9)
        self._steps, self._weights = steps, sum(steps.values())
        self._done = 0.0
        self._group, self._step = 0.0, ""
        self._rest = 0.0  # of the group, what is not done
        self._began = time.monotonic()
        self._ticker = Ticker(self.line)

    def group(self, seconds: float) -> None:
        """Some recordings begin, so many seconds of audio; all of those before them are done."""
        self._done += self._rest
        self._group, self._rest = seconds, seconds * self._weights
        self._ticker.show()

    def done(self, step: str, share: float) -> None:
        """A share of a step of the group is done."""
        some = min(self._group * share * self._steps.get(step, 0.0), self._rest)
        self._done, self._rest, self._step = self._done + some, self._rest - some, step
        self._ticker.show()

    def drop(self, seconds: float) -> None:
        """So many seconds of audio cannot be read, and are no work."""
        self._total = max(self._total - seconds, 1e-9)

    def line(self, seconds: float) -> str:
        """After so many seconds."""
        share = min(self._done / (self._total * self._weights), 1.0)
        left = f"about {time_left(share, seconds=seconds)}" if share > 0.01 else "starting"
        step = f", {self._step}" if self._step else ""
        return f"transcribe: {100 * share:.0f} % of {length(self._total)} of audio{step}; {left}"
