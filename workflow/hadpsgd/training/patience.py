"""Early stopping: when held-out losses say that it is enough, and which epoch was the best.

Rank 0 hears of the losses, epoch by epoch, asks all learners to stop and says why on the board: so
they know this end from that of a signal. All follows from the rows of metrics.jsonl; a run that
goes on from a checkpoint hears those again that it keeps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

NOTICE = "enough"
"""On the board, once it is."""


class Patience:
    """What has been heard of a run.

    Args:
        epochs: without a better loss than before that are enough; 0: there is never enough.
    """

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs
        self.best = 0
        """The epoch with the lowest loss, the first of several; 0: none was a number."""
        self.enough = False
        self._lowest = math.inf

    def heard(self, epoch: int, *, loss: float) -> None:
        """The held-out loss after the next epoch; what comes when it is enough changes nothing."""
        if self.enough:
            return
        if loss < self._lowest:
            self.best, self._lowest = epoch, loss
        self.enough = 0 < self.epochs <= epoch - self.best

    def hear(self, rows: Iterable[Mapping[str, Any]]) -> Patience:
        """Rows of metrics.jsonl; itself."""
        losses = {int(row["epoch"]): row["heldout_loss"] for row in rows if "heldout_loss" in row}
        for epoch, loss in sorted(losses.items()):
            self.heard(epoch, loss=loss)
        return self
