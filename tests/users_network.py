"""A user's network and optimizer, for the tests of `decentralize`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch._dynamo  # optimizers would import it in every process, for seconds
from torch import Tensor, nn

LEARNERS, STEPS, PASSES = 4, 6, 2


class Net(nn.Module):
    """Convolution, statistics, a tied layer, a frozen one, two types of parameters."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.conv = nn.Conv1d(2, 4, 3, bias=False)  # before statistics, a bias has no gradient
        self.norm = nn.BatchNorm1d(4)
        self.frozen = nn.Linear(4, 4)
        self.frozen.requires_grad_(False)
        self.tied = nn.Linear(4, 4)
        self.again = nn.Linear(4, 4)
        self.again.weight = self.tied.weight
        self.out = nn.Linear(4, 3).double()
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf, 0.0], dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 2, time] -> log posteriors of two classes and an impossible one."""
        h = self.norm(self.conv(x)).relu().mean(-1)
        h = self.again(self.tied(self.frozen(h)).tanh())
        return (self.out(h.double()) + self.mask).log_softmax(-1)


def examples(learner: int, step: int, part: int) -> tuple[Tensor, Tensor]:
    """A minibatch."""
    draws = np.random.default_rng([learner, step, part])
    x = torch.from_numpy(draws.normal(size=(5, 2, 6))).float()
    return x, (x.sum((1, 2)) > 0).long() * 2


def backward(model: nn.Module, learner: int, step: int) -> None:
    """A gradient of several passes."""
    device = next(model.parameters()).device
    for part in range(PASSES):
        x, y = (tensor.to(device) for tensor in examples(learner, step, part))
        (nn.functional.nll_loss(model(x), y) / PASSES).backward()


def adamw(model: Net) -> torch.optim.Optimizer:
    """Two groups."""
    last = list(model.out.parameters())
    first = [p for p in model.parameters() if all(p is not q for q in last)]
    groups: list[dict[str, Any]] = [
        {"params": first},
        {"params": last, "lr": 0.002, "weight_decay": 0.2},
    ]
    return torch.optim.AdamW(groups, lr=0.01, weight_decay=0.1)


def mixed(model: nn.Module) -> list[Tensor]:
    """What is mixed."""
    learning = [p.detach() for p in model.parameters() if p.requires_grad]
    return [*learning, model.norm.running_mean, model.norm.running_var]  # type: ignore[union-attr,list-item]


def vector(model: nn.Module) -> np.ndarray:
    """The same as one [elements], in double precision."""
    return torch.cat([t.double().flatten() for t in mixed(model)]).cpu().numpy().copy()


def fill(model: nn.Module, values: np.ndarray) -> None:
    """The other way."""
    at = 0
    for tensor in mixed(model):
        part = torch.from_numpy(values[at : at + tensor.numel()])
        tensor.copy_(part.view(tensor.shape))
        at += tensor.numel()


def close(found: np.ndarray, expected: np.ndarray) -> None:
    """Within single precision; Adam divides small numbers by small ones."""
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-6)
