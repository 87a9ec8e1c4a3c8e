"""SGD with momentum, as torch.optim.SGD defines it, on flat buffers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from hadpsgd.decentralized.core.buffers import Flat


@dataclass(frozen=True, kw_only=True)
class Sgd:
    """v <- momentum v + d, w <- w - rate v; d = g + weight_decay phi. Nesterov: w - rate (d + m v).

    The gradient's norm, computed before every update, is clipped to `clip_norm` (0: never).
    """

    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    clip_norm: float = 0.0

    @property
    def has_velocity(self) -> bool:
        """Its state is the learner's velocity."""
        return True

    def bind(self, flat: Flat, *, shared: bool) -> None:
        """Any buffers will do."""

    def state_dict(self) -> dict[str, Any]:
        """Nothing beside the velocity."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing."""

    def update(
        self,
        weights: Tensor,
        gradient: Tensor,
        velocity: Tensor,
        rate: float,
        *,
        phi: Tensor,
        norm: float,
    ) -> None:
        """One step in place, all tensors of one shape; `phi` is where the gradient was taken.

        The gradient is used up.
        """
        if self.clip_norm and norm > self.clip_norm:
            gradient.mul_(self.clip_norm / norm)
        if self.weight_decay:
            gradient.add_(phi, alpha=self.weight_decay)
        if not self.momentum:
            weights.add_(gradient, alpha=-rate)
            return
        velocity.mul_(self.momentum).add_(gradient)
        if self.nesterov:
            gradient.add_(velocity, alpha=self.momentum)
            weights.add_(gradient, alpha=-rate)
        else:
            weights.add_(velocity, alpha=-rate)
