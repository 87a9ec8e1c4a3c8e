"""What a learner tells its partners beside its weights."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Note:
    """What a learner tells its partner beside its weights."""

    version: int = 0
    """Version of the snapshot."""
    steps: int = 0
    """Its updates so far."""
    pause: int = -1
    """Round before which all learners pause for a checkpoint, if not negative."""
    stop: int = -1
    """Round before which they end, if not negative."""
    finished: int = 0
    """Bit i: learner i is known to have applied its last gradient."""
