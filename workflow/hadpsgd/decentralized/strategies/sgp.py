"""Stochastic gradient push (arXiv 1811.10792)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hadpsgd.decentralized.core.outer import Outer
from hadpsgd.decentralized.strategies.periodic import Periodic

if TYPE_CHECKING:
    from torch import Tensor

    from hadpsgd.decentralized.core.events import Mix
    from hadpsgd.decentralized.strategies.mixer import Mixer
    from hadpsgd.decentralized.strategies.parts import Parts
    from hadpsgd.decentralized.topology.mixing import MixingSchedule


class PushSum(Outer):
    """x_i <- sum_j p_ij x_j and w_i <- sum_j p_ij w_j, columns of P summing to 1; z_i = x_i / w_i.

    All know the schedule, so each computes all push-sum weights w and none is sent.
    """

    biased = True

    def __init__(self, schedule: MixingSchedule, node: int) -> None:
        self.schedule = schedule
        self.node = node
        self.masses = [1.0] * schedule.learners

    @override
    def step(self, mix: Mix, mixed: Tensor, weights: Tensor) -> None:
        """A row of P need not sum to 1: the own share is p_ii, not what the others leave of 1."""
        rows = self.schedule.round(mix.round).takes
        mixed.add_(weights, alpha=sum(rows[self.node].values()) - 1)
        self.masses = [sum(p * self.masses[j] for j, p in row.items()) for row in rows]

    @override
    def unbiased(self, weights: Tensor, out: Tensor) -> None:
        """z of the learner."""
        out.copy_(weights).div_(self.masses[self.node])

    @override
    def state(self) -> dict[str, Any]:
        """All learners' push-sum weights."""
        return {"masses": self.masses}

    @override
    def restore(self, state: dict[str, Any]) -> None:
        """The masses; the parameters follow from the weights."""
        self.masses = list(state["masses"])


@dataclass(frozen=True, kw_only=True)
class Sgp(Periodic):
    """x_i <- sum_j p_ij (x_j - a g_j(z_j)): a step at the de-biased parameters, then a push."""

    name = "sgp"
    summary = "weights pushed along a directed graph after every step, de-biased by push-sum"
    default_schedule = "one-peer-exponential"
    among_super_learners = True
    push_sum = True
    every: int = field(default=1, init=False)

    @override
    def mixer(self, parts: Parts) -> Mixer:
        """With those that the schedule names, between gradients."""
        return parts.in_step(parts.peers())

    @override
    def outer(self, weights: Tensor, schedule: MixingSchedule, node: int) -> Outer:
        """The push-sum weight."""
        return PushSum(schedule, node)
