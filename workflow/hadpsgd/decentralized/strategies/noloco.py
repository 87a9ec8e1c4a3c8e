"""NoLoCo (arXiv 2506.10911)."""

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


class PairMomentum(SlowWeights):
    """v_i <- m v_i + a (mean_j (x_j - y_j) + mean_j y_j - y_i), y_i <- y_i + v_i; j: i's pair.

    The last two terms draw slow weights y together; the paper gives them a factor of their own, its
    authors' code the outer rate a, as here. Then y_j drops out: what is sent is x_j alone.
    """

    @override
    def step(self, mix: Mix, mixed: Tensor, weights: Tensor) -> None:
        """`mixed` is the pair's mean of x, or the learner's own x where it has no partner."""
        self.velocity.mul_(self.momentum).add_(mixed.sub_(self.slow), alpha=self.rate)
        mixed.copy_(self.slow.add_(self.velocity))


@dataclass(frozen=True, kw_only=True)
class Noloco(Periodic):
    """Local steps, then an outer step with momentum towards the mean of a random pair."""

    name = "noloco"
    summary = "local steps, then an outer momentum step towards a random pair's mean"
    default_schedule = "random-partner"
    among_super_learners = True
    outer_rate: float = 0.7
    outer_momentum: float = 0.5

    @classmethod
    @override
    def misfit(cls, schedule: str, *, symmetric: bool) -> str | None:
        """Directed rounds have no pairs."""
        if not symmetric:
            return f"noloco moves both ends to their mean: '{schedule}' has one-way exchanges"
        return super().misfit(schedule, symmetric=symmetric)

    @override
    def mixer(self, parts: Parts) -> Mixer:
        """With the partner of the schedule, between gradients."""
        return parts.in_step(parts.peers())

    @override
    def outer(self, weights: Tensor, schedule: MixingSchedule, node: int) -> Outer:
        """Each learner's own."""
        return PairMomentum(weights, rate=self.outer_rate, momentum=self.outer_momentum)
