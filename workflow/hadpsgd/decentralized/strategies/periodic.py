"""Rounds of mixing after every so many steps, between gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from hadpsgd.decentralized.core.outer import Outer
from hadpsgd.decentralized.strategies.strategy import Counters, Strategy

if TYPE_CHECKING:
    from torch import Tensor

    from hadpsgd.decentralized.topology.mixing import MixingSchedule


@dataclass(frozen=True, kw_only=True)
class Periodic(Strategy):
    """Local steps, after every few of which all wait for a round."""

    every: int = 8
    """Local steps between rounds."""

    @override
    def may_start(self, now: Counters) -> bool:
        """After every `every`-th local step."""
        return now.steps == self.shared_steps + (now.started + 1) * self.every

    @override
    def may_begin(self, now: Counters) -> bool:
        """Once the round that is due is mixed in."""
        due = max(0, now.steps - self.shared_steps) // self.every
        return now.rounds >= due

    @override
    def outer(self, weights: Tensor, schedule: MixingSchedule, node: int) -> Outer:
        """Mixed weights are where the next gradient is taken."""
        return Outer()
