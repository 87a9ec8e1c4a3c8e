"""Many learners in one process in virtual time: the engine itself, without its machines.

Every node of the schedule (a learner, or a super-learner) has an engine with its two tasks, one
for gradients and one for mixing, as it has as a process; what the clock adds is how long a
gradient and a message take. Weights are real: losses and consensus distances are those of a run
with such times.

Memory: one module and one gradient for all. A gradient is computed when it is about to be applied,
not when it begins: the model it is taken at stands still in between (but for `late` strategies,
whose nodes have a gradient of their own).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from hadpsgd.decentralized.core.buffers import Flat, Slot, flatten
from hadpsgd.decentralized.core.engine import NotFiniteError
from hadpsgd.decentralized.core.events import Event
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.place import Place
from hadpsgd.decentralized.core.work import Ledger, Left, LocalStore
from hadpsgd.decentralized.network.collectives import Group
from hadpsgd.decentralized.network.rounding import ROUNDINGS, message_like
from hadpsgd.decentralized.record.record import Recorder
from hadpsgd.decentralized.simulated.clock import VirtualClock
from hadpsgd.decentralized.simulated.node import (
    LearnerOnDemand,
    Node,
    Problem,
    Setting,
    SharedGradient,
    Step,
)
from hadpsgd.decentralized.simulated.transport import (
    Assembly,
    Network,
    SimulatedAveraging,
    SimulatedTransport,
)
from hadpsgd.decentralized.strategies.exchange import AverageExchange
from hadpsgd.decentralized.strategies.mixing_engine import DecentralizedEngine
from hadpsgd.decentralized.strategies.parts import Parts

__all__ = ["Node", "Problem", "Setting", "Simulation", "Step"]

ALONE = Group(None)


class Simulation:
    """Runs a setting; see `run`.

    Args:
        setting: strategy, schedule, speeds.
        problem: gives gradients; all nodes start from its module's parameters.
        watch: called with the simulation every `every` simulated seconds, from 0 on.
        record: keep every node's events (`Node.events`).
        recorder: makes the recorder of a node, which writes its events to a file.
        on_step: called with the node after each of its updates.
        on_pause: called with a node that stands still, as all do, because one's
            `engine.request_pause` or `request_stop` was called; then it goes on, or ends.
        skip_not_finite: leave such gradients out instead of raising `NotFiniteError`.
        flat: the buffers of the problem's module; made of it if None.

    To go on from a saved state, call `load_state_dict` of every node's engine before `run`, and set
    the moment at which it begins (`Node.begins`); where nodes share their work, `left`, too.
    """

    def __init__(
        self,
        setting: Setting,
        problem: Problem,
        *,
        watch: Callable[[Simulation], None] | None = None,
        every: float = math.inf,
        record: bool = False,
        recorder: Callable[[int], Recorder] | None = None,
        on_step: Callable[[Node, Step], None] = lambda _, __: None,
        on_pause: Callable[[Node], None] = lambda _: None,
        skip_not_finite: bool = False,
        flat: Flat | None = None,
    ) -> None:
        self.setting = setting
        self.problem = problem
        self.watch = watch
        self.every = every
        self.record = record
        self.recorder = recorder
        self.on_step = on_step
        self.on_pause = on_pause
        self.skip_not_finite = skip_not_finite
        self.clock = VirtualClock()
        flat = flat or flatten(problem.module)
        self.slots = flat.slots
        self.gradient = flat.gradient
        message = message_like(flat.weights, ROUNDINGS[setting.strategy.wire])
        model_bytes = setting.model_bytes
        if model_bytes is not None:  # that of the weights as they are
            model_bytes *= message.nbytes / flat.weights.nbytes
        self.network = Network(self.clock, setting.links, message, model_bytes)
        self.store = LocalStore()
        self.left = Left(total=setting.shared_steps * setting.schedule.learners)
        """What is to be done of the work that all share."""
        self.gradients = self._assembly()
        self.averages = self._assembly()
        self.nodes = [self._node(i, flat) for i in range(setting.schedule.learners)]

    def run(self, *, steps: int = 0, seconds: float = math.inf) -> list[Step]:
        """All updates in the order of their moments, of `steps` each or until `seconds`; without
        either, until the work that they share is done.

        But for `seconds`, rounds begun are brought to their end, so the learners' mean is kept.

        Raises:
            ValueError: there is no end.
        """
        if not steps and not self.setting.shared_steps and math.isinf(seconds):
            raise ValueError("a simulation ends after some steps or seconds")
        for node in self.nodes:
            self.clock.spawn(self._learn, node, steps or math.inf, name=f"learner {node.index}")
        if self.watch is not None:
            self.clock.spawn(self._observe, name="watch", daemon=True)
        self.clock.run(until=seconds)
        if self.watch is not None:
            self.watch(self)
        return sorted(
            (step for node in self.nodes for step in node.steps), key=lambda step: step.moment
        )

    def request_stop(self) -> None:
        """Ask all nodes to end, those of asynchronous strategies before the first round that none
        has begun: no news need travel, for which they would mix more often than they do.

        Where there are no rounds, or where all wait for each other in any case, the first node asks
        the others.
        """
        if self.setting.strategy.synchronous or self.setting.schedule.free:
            self.nodes[0].engine.request_stop()
            return
        round_ = max(node.engine.mixer.started for node in self.nodes)
        for node in self.nodes:
            mixer = node.engine.mixer
            with mixer.learner.changed:
                mixer.coordination.request_stop(round_, now=True)
                mixer.learner.changed.notify_all()
            mixer.wake()

    def weights(self) -> Tensor:
        """Weights of all nodes, mixes that wait included, [nodes, elements]."""
        rows = self.gradient.new_empty(len(self.nodes), len(self.gradient))
        for node, row in zip(self.nodes, rows, strict=True):
            node.engine.learner.snapshot(row)
        return rows

    def consensus(self) -> float:
        """Root mean square over the nodes of their distance from the mean."""
        total, mean = 0.0, self.mean()
        row = torch.empty_like(mean)
        for node in self.nodes:
            node.engine.learner.snapshot(row)
            total += float(row.sub_(mean).square().sum())
        return math.sqrt(total / len(self.nodes))

    def mean(self) -> Tensor:
        """Mean of the nodes' weights, [elements]."""
        mean, row = torch.zeros_like(self.gradient), torch.empty_like(self.gradient)
        for node in self.nodes:
            node.engine.learner.snapshot(row)
            mean += row
        return mean.div_(len(self.nodes))

    def bytes_sent(self) -> float:
        """By all nodes, since the start."""
        peers = sum(member.bytes_sent for member in self.network.members.values())
        allreduced = self.gradients.bytes_sent + self.averages.bytes_sent
        return peers + allreduced * len(self.nodes)

    def load_mean(self) -> nn.Module:
        """The problem's module with the nodes' mean weights, for evaluation."""
        self._point_to([self._view(self.mean(), slot) for slot in self.slots])
        return self.problem.module

    def take_gradient(self, node: Node) -> None:
        """The node's gradient at its model, the mean over its learners, into its buffer."""
        self.show(node)
        step, part = node.engine.steps, node.index
        if node.block is not None:
            step, part = divmod(node.block, len(self.nodes))
        members = range(part * self.setting.size, (part + 1) * self.setting.size)
        losses, total = [], None
        for member in members:
            self.gradient.zero_()
            with torch.enable_grad():
                losses.append(self.problem.gradient(learner=member, step=step))
            if len(members) > 1:
                total = self.gradient.clone() if total is None else total.add_(self.gradient)
        if total is not None:
            torch.div(total, len(members), out=self.gradient)
        if self.setting.strategy.late:
            node.engine.learner.gradient.copy_(self.gradient)
        node.loss = sum(losses) / len(losses)

    def show(self, node: Node) -> None:
        """Let the problem's module have the node's model."""
        self._point_to(node.views)

    def mean_gradient(self) -> Tensor:
        """Of all nodes, [elements]."""
        total = torch.zeros_like(self.gradient)
        for node in self.nodes:
            self.take_gradient(node)
            total += self.gradient
        return total.div_(len(self.nodes))

    # --- tasks ---

    def _learn(self, node: Node, steps: float) -> None:
        if node.begins:
            self.clock.sleep(node.begins)
        if self.setting.shared_steps:
            self._share(node)
        else:
            self._steps(node, steps)
        node.ended = self.clock.now()

    def _steps(self, node: Node, steps: float) -> None:
        with node.engine as engine:
            while engine.steps < steps:
                step = engine.steps
                self._step(node, rate=self.setting.rate(step), last=step + 1 == steps)
                self._pause(node)
                if engine.over:
                    return
            self._serve(node)

    def _share(self, node: Node) -> None:
        """As `_steps`, on blocks of the work that all share."""
        nodes = len(self.nodes)
        ledger = Ledger(
            self.store, self.left, learner=node.index, learners=nodes, now=self.clock.now
        )
        with node.engine as engine:
            while not (engine.over or ledger.all_done):
                node.block = ledger.claim()
                if node.block is None:
                    ledger.tell()
                    engine.rest()
                else:
                    self._step(node, rate=self.setting.rate(node.block // nodes), last=False)
                    ledger.finish(node.block)
                self._pause(node)
            if not engine.over:
                engine.no_more_gradients()
            self._serve(node)

    def _step(self, node: Node, *, rate: float, last: bool) -> None:
        step = node.engine.steps
        node.taken = None
        self.clock.sleep(self._compute_seconds(node.index, step))
        if self.setting.strategy.late:
            self.take_gradient(node)
        report = node.engine.step(rate, last=last, block=node.block)
        norm, skipped = node.taken or (report.norm, report.skipped)
        done = Step(
            moment=self.clock.now(),
            node=node.index,
            step=step,
            loss=node.loss,
            staleness=report.staleness,
            exposed=report.exposed,
            norm=norm,
            skipped=skipped,
            block=node.block,
        )
        node.steps.append(done)
        self.on_step(node, done)

    def _serve(self, node: Node) -> None:
        while not node.engine.over:
            node.engine.serve()
            self._pause(node)

    def _pause(self, node: Node) -> None:
        if node.engine.paused:
            self.on_pause(node)
            if not node.engine.over:
                node.engine.go_on()

    def _observe(self) -> None:
        assert self.watch is not None
        while True:
            self.watch(self)
            self.clock.sleep(self.every)

    def _compute_seconds(self, index: int, step: int) -> float:
        members = range(index * self.setting.size, (index + 1) * self.setting.size)
        slowest = max(self.setting.compute.at(learner=member, step=step) for member in members)
        return slowest + (self.setting.inside_seconds if self.setting.size > 1 else 0.0)

    # --- making a node ---

    def _assembly(self) -> Assembly:
        return Assembly(self.network, range(self.setting.schedule.learners))

    def _node(self, index: int, flat: Flat) -> Node:
        strategy, schedule = self.setting.strategy, self.setting.schedule
        weights = flat.weights if index == 0 else flat.weights.clone()
        gradient = flat.gradient.clone() if strategy.late else flat.gradient
        control = torch.zeros_like(flat.control)
        own = Flat(weights, gradient, control, control, flat.slots)
        holder: list[Node] = []
        events: list[Event] = []
        sgd, changed = self.setting.sgd, self.clock.condition(f"node {index}")
        writer = self.recorder(index) if self.recorder else None
        record = events.append if self.record else writer.event if writer else None
        folded = writer.fold if writer else None
        learner = (
            Learner(own, sgd, late=True, record=record, folded=folded, changed=changed)
            if strategy.late
            else LearnerOnDemand(
                own,
                sgd,
                take=lambda: self._prepare(holder[0]),
                outer=strategy.outer(weights[own.learnt], schedule, index),
                record=record,
                folded=folded,
                changed=changed,
            )
        )
        place = Place(rank=index, world=schedule.learners)
        engine = DecentralizedEngine(
            self.problem.module,
            learner,
            strategy,
            strategy.mixer(SimulatedParts(learner, self, place)),
            SharedGradient(self, index, control),  # type: ignore[arg-type]
            place,
            self.clock,
            recorder=writer,
            skip_not_finite=self.skip_not_finite,
        )
        views = [self._view(learner.model, slot) for slot in flat.slots]
        holder.append(Node(index, engine, views, events))
        return holder[0]

    def _prepare(self, node: Node) -> tuple[float, bool] | None:
        """Take the node's gradient, if it is not there as one that all share; what it is like."""
        if node.shared:
            node.shared = False
            return None
        self.take_gradient(node)
        norm = float(torch.linalg.vector_norm(self.gradient))
        if not (math.isfinite(norm) or self.skip_not_finite):
            first, size = node.index * self.setting.size, self.setting.size
            names = " or ".join(str(first + member) for member in range(size))
            raise NotFiniteError(
                f"gradient of learner {names} is not finite at step {node.engine.steps}"
            )
        node.taken = norm, not math.isfinite(norm)
        return node.taken

    def _point_to(self, views: Sequence[Tensor]) -> None:
        for slot, view in zip(self.slots, views, strict=True):
            slot.parameter.data = view

    @staticmethod
    def _view(buffer: Tensor, slot: Slot) -> Tensor:
        return buffer[slot.start : slot.stop].view(slot.parameter.shape)


class SimulatedParts(Parts):
    """Those of a node among others of one process."""

    def __init__(self, learner: Learner, simulation: Simulation, place: Place) -> None:
        setting, clock = simulation.setting, simulation.clock
        super().__init__(learner, setting.strategy, setting.schedule, place, clock, ALONE)
        self.simulation = simulation

    @override
    def transport(self) -> SimulatedTransport:
        """In virtual time."""
        return self.simulation.network.transport(self.place.rank)

    @override
    def average(self) -> AverageExchange:
        """All nodes meet."""
        averaging = partial(SimulatedAveraging, self.simulation.averages, self.place.rank)
        group: Any = self.simulation.averages  # counts bytes as a group does
        return AverageExchange(self.learner, self.coordination, self.place, averaging, [group])
