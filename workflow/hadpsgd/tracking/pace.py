"""How long a training still takes, by the rows of its first learner."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

from hadpsgd.progress import length

_ROWS = 50
"""The pace of so many rows counts."""


class Pace:
    """Epochs against wall-clock time."""

    def __init__(self) -> None:
        """No row yet."""
        self.epochs = 0
        """How many the training has; 0 as long as nothing is known."""
        self._seen: deque[tuple[float, float]] = deque(maxlen=_ROWS)

    def add(self, row: dict[str, Any]) -> None:
        """A row of metrics.jsonl; those without `whole` (of held-out scores) tell nothing.

        Where the time of training is known (`seconds`) it counts, without what lay between two
        attempts; in runs in virtual time that of the clock (`time`).
        """
        if "whole" not in row:
            return
        self.epochs = row["whole"]["epochs"]
        at = (float(row["epoch"]), float(row.get("seconds", row["time"])))
        if self._seen and at <= self._seen[-1]:  # resumed from a checkpoint before that row
            self._seen.clear()
        self._seen.append(at)

    def seconds(self) -> float | None:
        """What is left, or None where too little is known."""
        if len(self._seen) < 2:
            return None
        (first, began), (last, now) = self._seen[0], self._seen[-1]
        if last <= first:
            return None
        left = (self.epochs - last) * (now - began) / (last - first)
        return max(left, 0.0) if math.isfinite(left) else None

    def text(self) -> str:
        """`4 min left`; empty where too little is known, and at the end."""
        seconds = self.seconds()
        return f"{length(seconds)} left" if seconds else ""
