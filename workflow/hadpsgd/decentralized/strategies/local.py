"""Post-local SGD (arXiv 1808.07217)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from hadpsgd.decentralized.strategies.strategy import Counters, Strategy

if TYPE_CHECKING:
    from hadpsgd.decentralized.strategies.mixer import Mixer
    from hadpsgd.decentralized.strategies.parts import Parts


@dataclass(frozen=True, kw_only=True)
class Local(Strategy):
    """Shared gradients at first, then local steps and averages of weights."""

    name = "local"
    summary = "local steps, all weights averaged every few"
    default_schedule = "complete"
    collective = True
    among_super_learners = True
    every: int = 8
    """Local steps between averages."""
    synchronous_steps: int = 0
    """Steps of shared gradients before them."""

    @property
    @override
    def shared_steps(self) -> float:
        """Those before the local ones."""
        return self.synchronous_steps

    @override
    def mixer(self, parts: Parts) -> Mixer:
        """The mean of all, between gradients."""
        return parts.in_step(parts.average())

    @override
    def may_start(self, now: Counters) -> bool:
        """After every `every`-th local step."""
        return now.steps == self.synchronous_steps + (now.started + 1) * self.every

    @override
    def may_begin(self, now: Counters) -> bool:
        """Once the average is there."""
        due = max(0, now.steps - self.synchronous_steps) // self.every
        return now.rounds >= due
