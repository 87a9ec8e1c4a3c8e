"""A small problem for simulated learners, and a finished simulation of it."""

from __future__ import annotations

import dense
import numpy as np
import torch
from torch import nn

from hadpsgd.decentralized.core.sgd import Sgd
from hadpsgd.decentralized.network.speeds import ComputeTimes, LinkTimes
from hadpsgd.decentralized.simulated.simulation import Setting, Simulation, Step
from hadpsgd.decentralized.strategies import registry as strategies
from hadpsgd.decentralized.strategies.registry import Choice
from hadpsgd.decentralized.topology.schedules import create

RATE = 0.1
SGDS = [
    Sgd(),
    Sgd(momentum=0.9),
    Sgd(momentum=0.9, nesterov=True),
    Sgd(momentum=0.5, weight_decay=0.1),
]


class Small:
    """A problem of 8 parameters in float64 whose gradient NumPy knows as well."""

    def __init__(self) -> None:
        self.module: nn.Module = nn.Linear(3, 2).double()
        with torch.no_grad():
            for n, p in enumerate(self.module.parameters()):
                p.copy_(torch.arange(p.numel(), dtype=torch.float64).view(p.shape).sin() + n)

    def gradient(self, learner: int, step: int) -> float:
        """As `small_gradient`, through the module's own parameters and gradients."""
        with torch.no_grad():
            weight, bias = self.module.parameters()
            at = np.zeros(PADDED)
            at[:6], at[16:18] = weight.flatten().numpy(), bias.numpy()
            gradient = torch.from_numpy(small_gradient(learner, step, at))
            assert weight.grad is not None and bias.grad is not None
            weight.grad += gradient[:6].view(2, 3)
            bias.grad += gradient[16:18]
        return float(at @ at)


PADDED = 32
"""Elements of its flat buffer."""


def small_gradient(learner: int, step: int, at: np.ndarray) -> np.ndarray:
    """Nonlinear, another one for each learner and step; zero in the buffer's gaps."""
    draw = np.random.default_rng([learner, step])
    used = np.zeros(PADDED)
    used[:6] = used[16:18] = 1
    return used * np.tanh(draw.normal(size=PADDED) * at + draw.normal())


def oracle(sgd: Sgd) -> dense.Sgd:
    """The same settings for the dense evaluation."""
    return dense.Sgd(momentum=sgd.momentum, nesterov=sgd.nesterov, weight_decay=sgd.weight_decay)


def simulate(
    choice: Choice,
    schedule: str,
    learners: int,
    steps: int,
    *,
    compute: ComputeTimes | None = None,
    links: LinkTimes | None = None,
    sgd: Sgd = SGDS[0],
    size: int = 1,
) -> tuple[Simulation, list[Step], np.ndarray]:
    """A finished simulation, its steps and the initial weights [P]."""
    setting = Setting(
        strategy=strategies.create(choice),
        schedule=create(schedule, learners=learners, seed=3),
        compute=compute or ComputeTimes(seconds=1.0, factors={0: 2.5}, spread="exponential"),
        links=links or LinkTimes(latency=0.01, bandwidth=1e4),
        size=size,
        sgd=sgd,
        rate=lambda _: RATE,
    )
    simulation = Simulation(setting, Small(), record=True)
    start = simulation.mean().numpy().copy()
    return simulation, simulation.run(steps=steps, seconds=1000), start
