"""Nodes of a simulation, made as those of processes are (`assembly.build`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from typing_extensions import override

from hadpsgd.decentralized.core.buffers import Flat, Slot
from hadpsgd.decentralized.core.events import Event
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.place import Place
from hadpsgd.decentralized.elastic.decision import Decision
from hadpsgd.decentralized.elastic.exchange import ElasticExchange
from hadpsgd.decentralized.elastic.membership import Membership
from hadpsgd.decentralized.elastic.parts import ElasticParts
from hadpsgd.decentralized.network.collectives import Group
from hadpsgd.decentralized.simulated.meetings import SimulatedAveraging
from hadpsgd.decentralized.simulated.node import LearnerOnDemand, Node, SharedGradient
from hadpsgd.decentralized.simulated.transport import SimulatedTransport
from hadpsgd.decentralized.strategies.average_exchange import AverageExchange
from hadpsgd.decentralized.strategies.mixer import Mixer
from hadpsgd.decentralized.strategies.mixing_engine import DecentralizedEngine
from hadpsgd.decentralized.strategies.parts import Parts

if TYPE_CHECKING:
    from hadpsgd.decentralized.simulated.simulation import Simulation

ALONE = Group(None)


@dataclass(frozen=True, kw_only=True)
class Change:
    """A node has gone over to another membership."""

    moment: float
    node: int
    alive: tuple[int, ...]


class WatchedMembership(Membership):
    """Tells a simulation when it changes."""

    def __init__(self, simulation: Simulation, place: Place, transport: SimulatedTransport) -> None:
        setting = simulation.setting
        super().__init__(
            simulation.members_store,
            setting.schedule,
            place.rank,
            transport.lives,
            setting.patience,
            clock=simulation.clock,
        )
        self._simulation = simulation

    @override
    def adopt(self, decision: Decision) -> None:
        """Live by it."""
        super().adopt(decision)
        change = Change(moment=self.clock.now(), node=self.node, alive=decision.alive)
        self._simulation.changes.append(change)


class SimulatedParts(ElasticParts):
    """Those of a node among others of one process."""

    def __init__(self, learner: Learner, simulation: Simulation, place: Place, life: int) -> None:
        setting, clock = simulation.setting, simulation.clock
        super().__init__(learner, setting.strategy, setting.schedule, place, clock, ALONE)
        self.simulation = simulation
        self.life = life
        self.gradients = ALONE

    @override
    def transport(self) -> SimulatedTransport:
        """In virtual time."""
        transport = self.simulation.network.transport(self.place.rank)
        if self.simulation.setting.asks:
            transport.timeout = self.simulation.setting.patience
        return transport

    @override
    def membership(self) -> Membership:
        """Agreed on in a store of this process."""
        return WatchedMembership(self.simulation, self.place, self.transport())

    @override
    def free(self) -> Mixer:
        """Where nobody dies, nobody asks who takes part."""
        return super().free() if self.simulation.setting.asks else Parts.free(self)

    @override
    def average(self) -> AverageExchange:
        """All nodes meet."""
        averaging = partial(SimulatedAveraging, self.simulation.averages, self.place.rank)
        group: Any = self.simulation.averages  # counts bytes as a group does
        return AverageExchange(self.learner, self.coordination, self.place, averaging, [group])


def make_node(simulation: Simulation, index: int, flat: Flat, former: Node | None = None) -> Node:
    """A node at the weights of `flat`; or in place of one that died, whose events it goes on with.

    The first one of all takes the buffers of `flat` for its own.
    """
    strategy, schedule = simulation.setting.strategy, simulation.setting.schedule
    weights = flat.weights if index == 0 and former is None else flat.weights.clone()
    gradient = flat.gradient.clone() if strategy.late else flat.gradient
    control = torch.zeros_like(flat.control)
    own = Flat(weights, gradient, control, control, flat.slots)
    holder: list[Node] = []
    events: list[Event] = former.events if former is not None else []
    sgd, changed = simulation.setting.sgd, simulation.clock.condition(f"node {index}")
    writer = simulation.recorder(index) if simulation.recorder else None
    record = events.append if simulation.record else writer.event if writer else None
    folded = writer.fold if writer else None
    learner = (
        Learner(own, sgd, late=True, record=record, folded=folded, changed=changed)
        if strategy.late
        else LearnerOnDemand(
            own,
            sgd,
            take=lambda: simulation.prepare(holder[0]),
            outer=strategy.outer(weights[own.learnt], schedule, index),
            record=record,
            folded=folded,
            changed=changed,
        )
    )
    place = Place(rank=index, world=schedule.learners)
    life = former.life + 1 if former is not None else 1
    mixer = strategy.mixer(SimulatedParts(learner, simulation, place, life))
    exchange = mixer.exchange
    transport = simulation.network.members.get(index)

    def close() -> None:
        if simulation.network.members.get(index) is not transport:
            return  # it died
        if isinstance(exchange, ElasticExchange):
            exchange.leave()
        if transport is not None:
            simulation.network.leave(index, dies=False)

    def join(*, seconds: float, steps: int, version: int) -> None:
        """Records of a simulation lie in memory: they have what the former self did."""
        assert isinstance(exchange, ElasticExchange)
        if former is not None:
            steps, version = former.engine.steps, former.engine.learner.version
        exchange.join(seconds=seconds, steps=steps, version=version)

    engine = DecentralizedEngine(
        simulation.problem.module,
        learner,
        strategy,
        mixer,
        SharedGradient(simulation, index, control),
        place,
        simulation.clock,
        recorder=writer,
        join=join if isinstance(exchange, ElasticExchange) else None,
        skip_not_finite=simulation.skip_not_finite,
        close=close if simulation.setting.asks else lambda: None,
    )
    node = Node(index, engine, views_of(learner.model, flat.slots), events)
    holder.append(node)
    if former is not None:
        node.life, node.steps = life, former.steps
    return node


def views_of(buffer: Tensor, slots: Sequence[Slot]) -> list[Tensor]:
    """A module's parameters, seen in a buffer."""
    return [slot.of(buffer) for slot in slots]
