"""AD-PSGD (arXiv 1710.06952)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from hadpsgd.decentralized.strategies.strategy import UNROUNDED, Counters, Strategy

if TYPE_CHECKING:
    from hadpsgd.decentralized.strategies.mixer import Mixer
    from hadpsgd.decentralized.strategies.parts import Parts


@dataclass(frozen=True, kw_only=True)
class Adpsgd(Strategy):
    """Rounds go on beside the gradients, which are applied whenever they are ready."""

    name = "adpsgd"
    summary = "weights mixed with neighbours in a thread beside the gradients"
    synchronous = False
    among_super_learners = True
    pace: int = 1
    """Rounds for each gradient. Whoever is ahead starts them and makes its partners take part, so
    all learners together make as many as the fastest needs; if each started its own, a ring of L
    would make L rounds for each gradient."""
    max_staleness: int = 64
    """Versions that a gradient may miss; at the cap the learner's next round waits."""
    wire: str = UNROUNDED
    """Who rounds what it sends mixes with just that, so the learners' mean is kept."""

    @override
    def mixer(self, parts: Parts) -> Mixer:
        """With the partners of the schedule, or with partners that learners draw, at any moment."""
        return parts.drawn() if parts.schedule.free else parts.free()

    @override
    def may_start(self, now: Counters) -> bool:
        """Within its pace, or when a partner waits; never beyond the cap."""
        if now.finished:
            return now.invited
        return now.missed < self.max_staleness and (now.credit > 0 or now.invited)
