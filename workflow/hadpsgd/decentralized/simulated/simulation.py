"""Many learners in one process in virtual time: the engine itself, without its machines.

Every node of the schedule (a learner, or a super-learner) has an engine with its two tasks, one
for gradients and one for mixing, as it has as a process; what the clock adds is how long a
gradient and a message take. Weights are real: losses and consensus distances are those of a run
with such times.

Memory: one module and one gradient for all. A gradient is computed when it is about to be applied,
not when it begins: the model it is taken at stands still in between (but for `late` strategies,
whose nodes have a gradient of their own).

Nodes may die and come back, as their processes would: who is left notices it, agrees on who takes
part and goes on by the engine's own code (`elastic`), or finds another partner (`random_partner`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from hadpsgd.decentralized.core.buffers import Flat, flatten
from hadpsgd.decentralized.core.engine import NotFiniteError
from hadpsgd.decentralized.core.left import Left
from hadpsgd.decentralized.core.stores import LocalStore
from hadpsgd.decentralized.network.rounding import ROUNDINGS, message_like
from hadpsgd.decentralized.record.record import Recorder
from hadpsgd.decentralized.simulated.clock import VirtualClock
from hadpsgd.decentralized.simulated.making import Change, make_node, views_of
from hadpsgd.decentralized.simulated.meetings import Assembly
from hadpsgd.decentralized.simulated.node import Node, Problem, Setting, Step, refuse
from hadpsgd.decentralized.simulated.tasks import Tasks
from hadpsgd.decentralized.simulated.transport import Network

__all__ = ["Node", "Problem", "Setting", "Simulation", "Step"]


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

    Raises:
        UserError: nodes die, and the strategy cannot go on without them.
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
        refuse(setting)
        flat = flat or flatten(problem.module)
        self.flat = flat
        self.slots = flat.slots
        self.gradient = flat.gradient
        message = message_like(flat.weights, ROUNDINGS[setting.strategy.wire])
        model_bytes = setting.model_bytes
        if model_bytes is not None:  # that of the weights as they are
            model_bytes *= message.nbytes / flat.weights.nbytes
        self.network = Network(self.clock, setting.links, message, model_bytes)
        self.store, self.members_store = LocalStore(), LocalStore()
        self.dead: set[int] = set()
        """Nodes that have died, and have not got in again."""
        self.changes: list[Change] = []
        """What each node has gone over to, in the order of the moments."""
        self.left = Left(total=setting.shared_steps * setting.schedule.learners)
        """What is to be done of the work that all share."""
        self.gradients = self._assembly()
        self.averages = self._assembly()
        self.nodes = [make_node(self, i, flat) for i in range(setting.schedule.learners)]

    def run(self, *, steps: int = 0, seconds: float = math.inf) -> list[Step]:
        """All updates in the order of their moments, of `steps` each or until `seconds`; without
        either, until the work that they share is done.

        But for `seconds`, rounds begun are brought to their end, so the learners' mean is kept.

        Raises:
            ValueError: there is no end.
        """
        if not steps and not self.setting.shared_steps and math.isinf(seconds):
            raise ValueError("a simulation ends after some steps or seconds")
        tasks = Tasks(self, steps or math.inf)
        for node in self.nodes:
            tasks.spawn(node)
        for index, moment in self.setting.deaths.items():
            self.clock.after(moment, partial(tasks.die, index))
        for index, moment in self.setting.returns.items():
            self.clock.after(moment, partial(tasks.come_back, index))
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
        """Weights of all living nodes, mixes that wait included, [nodes, elements]."""
        rows = self.gradient.new_empty(len(self.living), len(self.gradient))
        for node, row in zip(self.living, rows, strict=True):
            node.engine.learner.snapshot(row)
        return rows

    @property
    def living(self) -> list[Node]:
        """Nodes that take part."""
        return [node for node in self.nodes if node.index not in self.dead]

    def consensus(self) -> float:
        """Root mean square over the nodes of their distance from the mean."""
        total, mean = 0.0, self.mean()
        row = torch.empty_like(mean)
        for node in self.living:
            node.engine.learner.snapshot(row)
            total += float(row.sub_(mean).square().sum())
        return math.sqrt(total / len(self.living))

    def mean(self) -> Tensor:
        """Mean of the living nodes' weights, [elements]."""
        mean, row = torch.zeros_like(self.gradient), torch.empty_like(self.gradient)
        for node in self.living:
            node.engine.learner.snapshot(row)
            mean += row
        return mean.div_(len(self.living))

    def bytes_sent(self) -> float:
        """By all nodes, since the start."""
        allreduced = self.gradients.bytes_sent + self.averages.bytes_sent
        return self.network.bytes_sent + allreduced * len(self.nodes)

    def load_mean(self) -> nn.Module:
        """The problem's module with the nodes' mean weights, for evaluation."""
        self._point_to(views_of(self.mean(), self.slots))
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

    def _observe(self) -> None:
        assert self.watch is not None
        while True:
            self.watch(self)
            self.clock.sleep(self.every)

    def _assembly(self) -> Assembly:
        return Assembly(self.network, range(self.setting.schedule.learners))

    def prepare(self, node: Node) -> tuple[float, bool] | None:
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
