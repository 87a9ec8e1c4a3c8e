"""A small problem to train on where the subject is the algorithm: classes of a random teacher.

Inputs are Gaussian, labels those of a fixed random network, a tenth of them wrong. Each learner
draws its minibatches from the same distribution; minibatch and noise depend on the seed, the
learner and the step alone.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

INPUTS, CLASSES = 24, 8
HELD_OUT = 2**31
"""Number of the learner that nobody is."""
WRONG = 0.1
"""Share of labels that are drawn at random."""


def network(hidden: int, generator: torch.Generator) -> nn.Sequential:
    """Two layers, their parameters drawn by `generator`."""
    layers = nn.Sequential(nn.Linear(INPUTS, hidden), nn.Tanh(), nn.Linear(hidden, CLASSES))
    with torch.no_grad():
        for p in layers.parameters():
            fan_in = p.shape[-1] if p.dim() > 1 else hidden
            p.copy_(torch.randn(p.shape, generator=generator) / fan_in**0.5)
    return layers


class Toy:
    """Minibatches, gradients and held-out loss.

    Args:
        batch: examples of a minibatch.
        hidden: units of the student.
        seed: of teacher, student and data.
    """

    def __init__(self, *, batch: int = 32, hidden: int = 64, seed: int = 1) -> None:
        self.batch = batch
        self.seed = seed
        self.teacher = network(16, torch.Generator().manual_seed(seed))
        self.module: nn.Module = network(hidden, torch.Generator().manual_seed(seed + 1))
        self._held_out = self._examples(4096, HELD_OUT, 0)

    def minibatch(self, *, learner: int, step: int) -> tuple[Tensor, Tensor]:
        """Inputs [batch, INPUTS] and labels [batch]."""
        return self._examples(self.batch, learner, step)

    def gradient(self, *, learner: int, step: int) -> float:
        """Add the minibatch's gradient to the module's; its loss."""
        inputs, labels = self.minibatch(learner=learner, step=step)
        loss = nn.functional.cross_entropy(self.module(inputs), labels)
        loss.backward()
        return loss.item()

    @torch.no_grad()
    def held_out_loss(self) -> float:
        """Of the module, on examples that no learner sees."""
        inputs, labels = self._held_out
        return nn.functional.cross_entropy(self.module(inputs), labels).item()

    def _examples(self, count: int, learner: int, step: int) -> tuple[Tensor, Tensor]:
        # torch's CPU generator looks at 32 bits of its seed: all three must be in them
        (seed,) = np.random.SeedSequence((self.seed, learner, step)).generate_state(1)
        generator = torch.Generator().manual_seed(int(seed))
        inputs = torch.randn(count, INPUTS, generator=generator)
        with torch.no_grad():
            labels = self.teacher(inputs).argmax(dim=1)
        wrong = torch.rand(count, generator=generator) < WRONG
        drawn = torch.randint(CLASSES, (count,), generator=generator)
        return inputs, torch.where(wrong, drawn, labels)
