"""What nodes of a simulation do: gradients, from start to end; they die and come back.

Each is a task of the clock, beside that of the node's mixer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hadpsgd.decentralized.core.supply import Claims
from hadpsgd.decentralized.core.work import Ledger
from hadpsgd.decentralized.elastic.membership import TooLateError
from hadpsgd.decentralized.simulated.making import make_node
from hadpsgd.decentralized.simulated.node import Node, Step

if TYPE_CHECKING:
    from hadpsgd.decentralized.simulated.simulation import Simulation


class Tasks:
    """Of a simulation whose nodes do so many steps each; where they share their work, of all."""

    def __init__(self, simulation: Simulation, steps: float) -> None:
        self.simulation = simulation
        self.setting, self.clock = simulation.setting, simulation.clock
        self.steps = steps

    def spawn(self, node: Node) -> None:
        """Begin with a node's gradients."""
        name = f"learner {node.index}"
        node.task = self.clock.spawn(self._learn, node, name=name)

    def die(self, index: int) -> None:
        """A node's processes end without a word."""
        node = self.simulation.nodes[index]
        if node.task.done:
            return  # it came to its end before
        self.simulation.dead.add(index)
        self.simulation.network.leave(index, dies=True)
        for task in (node.task, node.engine.mixer.task):
            self.clock.kill(task)

    def come_back(self, index: int) -> None:
        """One that died is started again, and asks to join."""
        if index not in self.simulation.dead:
            return
        self.simulation.network.come_back(index)
        node = make_node(self.simulation, index, self.simulation.flat, self.simulation.nodes[index])
        node.task = self.clock.spawn(self._rejoin, node, name=f"learner {index}")

    def _rejoin(self, node: Node) -> None:
        try:
            node.engine.join(self.setting.patience)
        except TooLateError:
            self.simulation.network.leave(node.index, dies=False)
            return
        self.simulation.nodes[node.index] = node
        self.simulation.dead.discard(node.index)
        self._learn(node)

    def _learn(self, node: Node) -> None:
        if node.begins:
            self.clock.sleep(node.begins)
        if self.setting.shared_steps:
            self._share(node)
        else:
            self._steps(node)
        node.ended = self.clock.now()

    def _steps(self, node: Node) -> None:
        with node.engine as engine:
            while engine.steps < self.steps:
                step = engine.steps
                self._step(node, rate=self.setting.rate(step), last=step + 1 == self.steps)
                self._pause(node)
                if engine.over:
                    return
            self._serve(node)

    def _share(self, node: Node) -> None:
        """As `_steps`, on blocks of the work that all share."""
        nodes = len(self.simulation.nodes)
        with node.engine as engine:
            ledger = Ledger(
                self.simulation.store,
                self.simulation.left,
                learner=node.index,
                learners=nodes,
                generation=engine.living[0] if node.life > 1 else 0,
                now=self.clock.now,
            )
            claims = Claims(ledger, lambda: engine.living)
            while not engine.over:
                node.block = claims.next()
                if node.block is None:
                    if claims.over():
                        break
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
        begin, seconds = self.clock.now(), self.setting.gradient_seconds(node=node.index, step=step)
        node.span = begin, begin + seconds
        self.clock.sleep(seconds)
        if self.setting.strategy.late:
            self.simulation.take_gradient(node)
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
        self.simulation.on_step(node, done)

    def _serve(self, node: Node) -> None:
        while not node.engine.over:
            node.engine.serve()
            self._pause(node)

    def _pause(self, node: Node) -> None:
        if node.engine.paused:
            self.simulation.on_pause(node)
            if not node.engine.over:
                node.engine.go_on()
