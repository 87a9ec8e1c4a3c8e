"""How a rank ends."""

from __future__ import annotations

from enum import IntEnum


class End(IntEnum):
    """Exit status of a rank."""

    DONE = 0
    REQUEUE = 75  # EX_TEMPFAIL: run the same command again, it goes on where it stopped
