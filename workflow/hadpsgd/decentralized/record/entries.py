"""What a record says: events that make versions, and what happened beside them."""

from __future__ import annotations

from dataclasses import dataclass

from hadpsgd.decentralized.core.events import Event
from hadpsgd.decentralized.topology.mixing import MixingSchedule

FORMAT = 2
READABLE = (1, 2)
RATE, UPDATE, BLOCK, MIX, MIX_AS_PLANNED, FOLD, JOIN, FORGET = b"RUBMmFJE"


@dataclass(frozen=True)
class Fold:
    """Pending mixes were added to the model outside of an update; makes no version."""


@dataclass(frozen=True)
class Forget:
    """The learner forgot what rounding kept back from its messages; makes no version."""


Entry = Event | Fold | Forget


def planned(schedule: MixingSchedule, *, node: int, round_: int) -> list[tuple[int, float]]:
    """(partner, weight) of a round, without the node itself."""
    takes = schedule.round(round_).partners(node)
    return [(j, takes[j]) for j in schedule.round(round_).receives(node)]
