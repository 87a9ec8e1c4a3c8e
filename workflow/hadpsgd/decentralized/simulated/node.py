"""What `simulation` is about and made of: a problem, a setting, nodes that share one gradient."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from typing_extensions import override

from hadpsgd.decentralized.core.buffers import Flat
from hadpsgd.decentralized.core.events import Event
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.outer import Outer
from hadpsgd.decentralized.core.sgd import Sgd
from hadpsgd.decentralized.core.threads import Condition
from hadpsgd.decentralized.network.speeds import ComputeTimes, LinkTimes
from hadpsgd.decentralized.simulated.clock import Task, VirtualClock
from hadpsgd.decentralized.simulated.meetings import Assembly, read_here
from hadpsgd.decentralized.simulated.overlap import pieces, shared_at
from hadpsgd.decentralized.strategies.mixing_engine import DecentralizedEngine
from hadpsgd.decentralized.strategies.strategy import Strategy
from hadpsgd.decentralized.topology.mixing import MixingSchedule
from hadpsgd.errors import UserError


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
    """Time of the gradient allreduce inside a super-learner, which goes on beside backward."""
    sgd: Sgd = field(default_factory=Sgd)
    rate: Callable[[int], float] = lambda _: 0.1
    """Learning rate of gradient number `step`."""
    shared_steps: int = 0
    """Steps of a node, in the mean, that make the work which all share; 0: each does its own."""
    model_bytes: float | None = None
    """Bytes of a model on the wire; those of the module if None."""
    deaths: Mapping[int, float] = field(default_factory=dict)
    """Node -> the moment at which its processes die."""
    returns: Mapping[int, float] = field(default_factory=dict)
    """Node that dies -> the moment at which it is started again, and asks to join."""
    elastic: bool = False
    """Whether nodes agree in a store on who takes part, as processes do; so where nodes die."""
    patience: float = 300.0
    """Seconds after which a node that is silent when the membership changes is given up."""

    @property
    def asks(self) -> bool:
        """Whether there is a membership to ask for."""
        return self.elastic or bool(self.deaths)

    def gradient_seconds(self, *, node: int, step: int) -> float:
        """Of a node: until its learners' mean is there."""
        members = range(node * self.size, (node + 1) * self.size)
        times = [self.compute.at(learner=member, step=step) for member in members]
        if self.size == 1:
            return times[0]
        model = self.model_bytes or 0.0
        spans = [(0.0, end) for end in times]
        return shared_at(spans, seconds=self.inside_seconds, count=pieces(model))


def refuse(setting: Setting) -> None:
    """What cannot be simulated.

    Raises:
        UserError: nodes die and the strategy cannot go on, or come back and cannot be let in.
    """
    if setting.deaths and setting.strategy.synchronous:
        raise UserError(f"strategy {setting.strategy.name} cannot go on without a learner")
    if setting.returns and setting.schedule.free:
        raise UserError("learners that draw partners do not let others in")
    if not setting.returns.keys() <= setting.deaths.keys():
        raise UserError("who comes back has failed before")
    if setting.deaths.keys() >= set(range(setting.schedule.learners)):
        raise UserError("somebody has to live")


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
    norm: float
    """Of the gradient."""
    skipped: bool
    """Whether the gradient was not finite and was left out."""
    block: int | None
    """What it was taken on, of the work that all share."""


class LearnerOnDemand(Learner):
    """Takes its gradient at the moment of the update, where the model still stands as it was.

    Args:
        flat: as for `Learner`, and so are those that are not named here.
        take: puts the gradient into the buffer; its norm and whether it is left out, or None where
            it was there before, and what the caller of `update` found is right.
    """

    def __init__(
        self,
        flat: Flat,
        sgd: Sgd,
        *,
        take: Callable[[], tuple[float, bool] | None],
        outer: Outer | None,
        record: Callable[[Event], None] | None,
        folded: Callable[[], None] | None,
        changed: Condition,
    ) -> None:
        super().__init__(flat, sgd, outer=outer, record=record, folded=folded, changed=changed)
        self._take = take

    @override
    def update(
        self, *, rate: float, norm: float = 0.0, skip: bool = False, block: int | None = None
    ) -> int:
        """As that of `Learner`, with the gradient of this moment."""
        taken = self._take()
        if taken is not None:
            norm, skip = taken
        return super().update(rate=rate, norm=norm, skip=skip, block=block)


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
        self.taken: tuple[float, bool] | None = None
        """Norm of the last gradient taken on demand, and whether it was left out."""
        self.begins = self.ended = 0.0
        """Moments at which it goes on from a saved state, and at which it has ended."""
        self.block: int | None = None
        """What it works on, of the work that all share."""
        self.span = (0.0, 0.0)
        """Moments at which its last gradient began and was whole."""
        self.life = 1
        """Which start of its processes this is."""
        self.task: Task
        """That for its gradients."""
        self.steps: list[Step] = []
        self.events = events


class Nodes(Protocol):
    """What a shared gradient asks of a simulation."""

    nodes: list[Node]
    clock: VirtualClock
    gradient: Tensor
    gradients: Assembly
    """Where all nodes meet for an allreduce of gradients."""

    def mean_gradient(self) -> Tensor: ...


class SharedGradient:
    """Stands in for `reducer.Reducer`: the mean over all nodes, summed in their order."""

    def __init__(self, simulation: Nodes, rank: int, control: Tensor) -> None:
        self.group = simulation.gradients
        self.active = False
        self._simulation = simulation
        self._rank = rank
        self._control = control

    def check(self) -> None:
        """Nothing is on its way."""

    def collected(self) -> None:
        """Nor is anything noted."""

    def finish(self, everybody_here: Callable[[], None] = lambda: None) -> None:  # noqa: ARG002
        """Wait for the allreduce."""
        if self.active:
            mean = read_here(self._meet(self._simulation.mean_gradient))
            self._simulation.gradient.copy_(mean)
            self._simulation.nodes[self._rank].shared = True

    def culprits(self) -> list[int]:
        """Nodes whose last loss was not finite; this one where all were."""
        sick = [node.index for node in self._simulation.nodes if not math.isfinite(node.loss)]
        return sick or [self._rank]

    def abandon(self) -> None:
        """Nothing is shared from here on."""
        self.active = False

    def close(self) -> None:
        """Nothing holds on to the module."""

    def _meet(self, mean: Callable[[], Tensor | None]) -> Any:
        """`mean()`, made once when all have come; the control values become their mean."""
        value, control = self.group.meet(
            self._rank,
            self._control,
            lambda controls: (mean(), torch.stack(controls).mean(dim=0)),
            self._left,
        )
        self._control.copy_(read_here(control))
        return value

    def _left(self, seconds: float) -> float:
        """Of an allreduce that went on beside backward."""
        spans = [node.span for node in self._simulation.nodes]
        count = pieces(self.group.network.model_bytes)
        end = shared_at(spans, seconds=seconds, count=count)
        return max(0.0, end - self._simulation.clock.now())
