"""What `simulation` is about and made of: a problem, a setting, nodes that share one gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from hadpsgd.decentralized.core.events import Event
from hadpsgd.decentralized.core.sgd import Sgd
from hadpsgd.decentralized.network.speeds import ComputeTimes, LinkTimes
from hadpsgd.decentralized.simulated.transport import Assembly
from hadpsgd.decentralized.strategies.mixing_engine import DecentralizedEngine
from hadpsgd.decentralized.strategies.strategy import Strategy
from hadpsgd.decentralized.topology.mixing import MixingSchedule


class Problem(Protocol):
    """What is to be learnt."""

    module: nn.Module

    def gradient(self, *, learner: int, step: int) -> float:
        """Backward of the loss of the learner's minibatch number `step`; returns the loss.

        It adds to the gradients of the module's parameters, whose values are the learner's.
        """


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is simulated."""

    strategy: Strategy
    schedule: MixingSchedule
    compute: ComputeTimes
    links: LinkTimes = field(default_factory=LinkTimes)
    size: int = 1
    """Learners of a super-learner. Compute times are those of learners, links those of nodes."""
    inside_seconds: float = 0.0
    """Time of the gradient allreduce inside a super-learner."""
    sgd: Sgd = field(default_factory=Sgd)
    rate: Callable[[int], float] = lambda _: 0.1
    """Learning rate of gradient number `step`."""
    model_bytes: float | None = None
    """Bytes of a model on the wire; those of the module if None."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """A gradient applied."""

    moment: float
    node: int
    step: int
    loss: float
    staleness: int
    exposed: float
    """Seconds that the node waited for communication before and after it."""


@dataclass(frozen=True)
class SgdOnDemand(Sgd):
    """Takes the gradient at the moment of the update, where the model still stands as it was."""

    take: Callable[[], None] = lambda: None

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
        """As `Sgd.update`; `norm` is unknown before."""
        self.take()
        if self.clip_norm:
            norm = float(torch.linalg.vector_norm(gradient))
        super().update(weights, gradient, velocity, rate, phi=phi, norm=norm)


class Node:
    """A node's engine and what it did."""

    def __init__(
        self, index: int, engine: DecentralizedEngine, views: list[Tensor], events: list[Event]
    ) -> None:
        self.index = index
        self.engine = engine
        self.views = views
        """The module's parameters, seen in this node's model buffer."""
        self.loss = math.nan
        """Of the last gradient."""
        self.shared = False
        """Whether the gradient buffer holds the mean of all nodes' gradients."""
        self.steps: list[Step] = []
        self.events = events


class Nodes(Protocol):
    """What a shared gradient asks of a simulation."""

    nodes: list[Node]
    gradient: Tensor
    gradients: Assembly
    """Where all nodes meet for an allreduce of gradients."""

    def mean_gradient(self) -> Tensor: ...


class SharedGradient:
    """Stands in for `collectives.Reducer`: the mean over all nodes, summed in their order."""

    def __init__(self, simulation: Nodes, rank: int, control: Tensor) -> None:
        self.group = simulation.gradients
        self.active = False
        self._simulation = simulation
        self._rank = rank
        self._control = control

    def finish(self, everybody_here: Callable[[], None] = lambda: None) -> None:  # noqa: ARG002
        """Wait for the allreduce."""
        if self.active:
            self._simulation.gradient.copy_(self._meet(self._simulation.mean_gradient))
            self._simulation.nodes[self._rank].shared = True

    def culprits(self) -> list[int]:
        """Gradients are taken too late to be looked at here."""
        return [self._rank]

    def _meet(self, mean: Callable[[], Tensor | None]) -> Any:
        """`mean()`, made once when all have come; the control values become their mean."""
        value, control = self.group.meet(
            self._rank,
            self._control,
            lambda controls: (mean(), torch.stack(controls).mean(dim=0)),
        )
        self._control.copy_(control)
        return value
