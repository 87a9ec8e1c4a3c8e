"""How the papers train ResNet-50: Goyal et al., "Accurate, Large Minibatch SGD" (1706.02677).

Linear scaling: the rate is 0.1 for 256 images a step, k n / 256 times as much for k learners with n
images each. Warm-up goes from 0.1 to it over 5 epochs, step by step; after 30, 60 and 80 of 90
epochs it is divided by 10. Weight decay leaves out the coefficients of BatchNorm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from hadpsgd.errors import UserError

REFERENCE = 256
"""Images of a step for which the base rate is meant."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The paper's values, where nothing else is said."""

    batch: int = 32
    """Images of a learner's step (n)."""
    epochs: int = 90
    base_rate: float = 0.1
    """For 256 images a step."""
    warm_up: float = 5.0
    """Epochs."""
    milestones: tuple[float, ...] = (30.0, 60.0, 80.0)
    """Epochs after which the rate is divided by 10."""
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 1e-4
    decay_all: bool = False
    """Decay biases and coefficients of BatchNorm, too."""

    def __post_init__(self) -> None:
        """UserError for what cannot be meant."""
        if min(self.batch, self.epochs) < 1:
            raise UserError("batch and epochs must be 1 at least")
        numbers = (self.base_rate, self.warm_up, self.momentum, self.weight_decay)
        if not all(map(math.isfinite, (*numbers, *self.milestones))):
            raise UserError("rate, warm-up, milestones, momentum and weight decay must be finite")
        if self.weight_decay < 0:
            raise UserError("weight decay must be 0 at least")
        if self.base_rate <= 0 or self.warm_up < 0 or not 0 <= self.momentum < 1:
            raise UserError("the rate must be over 0, warm-up not under 0, momentum in [0, 1)")
        if self.nesterov and not self.momentum:
            raise UserError("Nesterov's form needs momentum")
        if list(self.milestones) != sorted(self.milestones):
            raise UserError(f"milestones {self.milestones} do not rise")

    def rate(self, epoch: float, *, learners: int) -> float:
        """The learning rate at a moment, in epochs with a fraction."""
        full = self.base_rate * learners * self.batch / REFERENCE
        if epoch < self.warm_up:
            start = min(self.base_rate, full)
            return start + (full - start) * epoch / self.warm_up
        return full * 0.1 ** sum(epoch >= milestone for milestone in self.milestones)

    def optimizer(self, network: nn.Module) -> torch.optim.SGD:
        """SGD with momentum; two groups of parameters, with weight decay and without."""
        learnt = [p for p in network.parameters() if p.requires_grad]
        vectors = [p for p in learnt if p.ndim <= 1]  # biases, gamma and beta of BatchNorm
        others = [p for p in learnt if p.ndim > 1]
        groups: list[dict[str, Any]] = [
            {"params": others},
            {"params": vectors, "weight_decay": self.weight_decay if self.decay_all else 0.0},
        ]
        return torch.optim.SGD(
            [group for group in groups if group["params"]],
            lr=self.base_rate,
            momentum=self.momentum,
            nesterov=self.nesterov,
            weight_decay=self.weight_decay,
        )
