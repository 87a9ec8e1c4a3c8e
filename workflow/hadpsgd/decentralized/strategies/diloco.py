"""DiLoCo (arXiv 2311.08105)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from hadpsgd.decentralized.core.outer import Outer, SlowWeights
from hadpsgd.decentralized.strategies.periodic import Periodic

if TYPE_CHECKING:
    from torch import Tensor

    from hadpsgd.decentralized.core.events import Mix
    from hadpsgd.decentralized.strategies.mixer import Mixer
    from hadpsgd.decentralized.strategies.parts import Parts
    from hadpsgd.decentralized.topology.mixing import MixingSchedule


class Nesterov(SlowWeights):
    """With D = y - mean_j x_j, y the slow weights: v <- m v + D, y <- y - a (D + m v)."""

    @override
    def step(self, mix: Mix, mixed: Tensor, weights: Tensor) -> None:
        """Algorithm 1, line 14, as torch.optim.SGD defines Nesterov's momentum."""
        change = self.slow - mixed
        self.velocity.mul_(self.momentum).add_(change)
        change.add_(self.velocity, alpha=self.momentum)
        mixed.copy_(self.slow.add_(change, alpha=-self.rate))


@dataclass(frozen=True, kw_only=True)
class Diloco(Periodic):
    """Local steps, then an outer step with momentum by the mean change of all learners.

    With an outer rate of 1 and no momentum it is `local`.
    """

    name = "diloco"
    summary = "local steps, then an outer Nesterov step by all learners' mean change"
    default_schedule = "complete"
    collective = True
    among_super_learners = True
    outer_rate: float = 0.7
    outer_momentum: float = 0.9

    @override
    def mixer(self, parts: Parts) -> Mixer:
        """The mean of all, between gradients."""
        return parts.in_step(parts.average())

    @override
    def outer(self, weights: Tensor, schedule: MixingSchedule, node: int) -> Outer:
        """The outer optimiser, equal at all learners."""
        return Nesterov(weights, rate=self.outer_rate, momentum=self.outer_momentum)
