"""Training of virtual learners: a run of the config in one process, in virtual time.

It goes part by part. At every epoch of the first learner all are asked to stop, as real learners
are at a checkpoint: every mix before that moment is done and none after it begun. Their states are
written, and the next part begins from what was written. So a run that was killed repeats the part
under way from the same state as before, and ends with the same bits as one that was not.
"""

from __future__ import annotations

import gc
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from hadpsgd.decentralized.core.engine import Report
from hadpsgd.decentralized.core.left import Left
from hadpsgd.decentralized.core.place import Place
from hadpsgd.decentralized.simulated.node import Node, Step
from hadpsgd.training.averaging import Kept
from hadpsgd.training.board import SharedBoard
from hadpsgd.training.checkpoints import Checkpoints
from hadpsgd.training.end import End
from hadpsgd.training.evaluation import evaluate
from hadpsgd.training.interrupt import Interrupt
from hadpsgd.training.job import Job
from hadpsgd.training.loop import tell_of_enough
from hadpsgd.training.metrics import Meter, Metrics, say
from hadpsgd.training.progress import Progress
from hadpsgd.training.saved import Saved, newest_sound
from hadpsgd.training.virtual_learners import VirtualLearners
from hadpsgd.training.work import done_before


class Stopped(Exception):  # noqa: N818
    """A signal asked for the end."""


def train(job: Job) -> End:
    """Train until the last step or a signal; resumes from the newest checkpoint."""
    assert job.virtual is not None
    asked = threading.Event()
    del job.engine  # it holds models
    gc.collect()
    gc.freeze()  # what imports left need not be looked at after every part
    if saved := newest_sound(job.checkpoints.folder):
        say(f"{job.run.id}: resumes from checkpoint {saved.folder.name}")
    try:
        with Interrupt(asked.set):
            while not _part(job, job.virtual, asked):
                del job.engine
                gc.collect()  # models of the part before, held in circles
    except Stopped:
        return End.REQUEUE
    finally:
        gc.unfreeze()
    return End.DONE


def virtual_time(job: Job) -> dict[str, float]:
    """For the summary: that its time is virtual, and how much it was; or nothing."""
    return {"simulated": True, "virtual_seconds": job.virtual.seconds} if job.virtual else {}


def _part(job: Job, learners: VirtualLearners, asked: threading.Event) -> bool:
    """Train from the newest checkpoint to the next; whether that one is the end already."""
    part = Part(job, learners, asked)
    job.engine = part.simulation.nodes[0].engine
    if part.load():
        return True
    part.run()
    part.save()
    return False


@dataclass
class Line:
    """What one node tells."""

    progress: Progress
    meter: Meter


class Part:
    """A part of a run.

    Args:
        job: the run.
        learners: makes its simulation.
        asked: set when a signal asks for the end.
    """

    def __init__(self, job: Job, learners: VirtualLearners, asked: threading.Event) -> None:
        self.job = job
        self.learners = learners
        self.asked = asked
        self.simulation = learners.simulation(self._stepped)
        self.nodes = self.simulation.nodes
        folder, training = job.checkpoints.folder, job.settings.training
        self._kept = [Kept(folder, node.index, training) for node in self.nodes]
        self._lines: list[Line] = []
        self._progress = [0] * len(self.nodes)
        """Steps of the run that are done, as far as each node has come across."""

    def load(self) -> bool:
        """Put all nodes where the newest checkpoint has them, if any; whether it is the end."""
        saved = newest_sound(self.job.checkpoints.folder)
        if saved is None:
            return False
        self.job.checkpoints.last = saved
        complete = False
        for node in self.nodes:
            state = saved.load(node.index)
            node.engine.load_state_dict(state)
            self._kept[node.index].resume(state)
            node.begins = state["virtual_seconds"]
            self.job.enough = state.get("enough", False)  # former versions had no such thing
            complete = state["complete"] or self.job.enough
            self._progress[node.index] = node.engine.steps
        if self.learners.setting.shared_steps:
            self._share(saved)
        self.learners.seconds = max(node.begins for node in self.nodes)
        if complete:
            self.simulation.show(self.nodes[0])
        return complete

    def _share(self, saved: Saved) -> None:
        """What is left of the work that all share: what no record has up to the checkpoint."""
        folder, setting, nodes = self.job.checkpoints.folder, self.learners.setting, len(self.nodes)
        done = done_before(saved, folder, setting.schedule)
        for node, own in done.items():
            self._progress[node] = max(own, default=-1) // nodes + 1
        everybody = (block for blocks in done.values() for block in blocks)
        self.simulation.left = Left.after(everybody, setting.shared_steps * nodes)

    def run(self) -> None:
        """Train until all nodes stand still."""
        with self._telling():
            self.simulation.run(steps=self.job.total)
            self._tell_distance()
            if self._complete:
                for node in self.nodes:
                    self._evaluate(node, passed=self.job.settings.training.epochs)
                for line in self._lines:
                    line.progress.finish()
            elif self._lines[0].progress.patience.enough:
                self.job.enough = True
                tell_of_enough(self.job, self._lines[0].progress)

    def _tell_distance(self) -> None:
        """How far apart the learners are now that all stand still, at the first one's epoch, and
        what that does to their gradients, where the run wants to know.

        Exact, where `consensus_distance` is what a single mix tells.
        """
        if len(self.nodes) == 1:
            return
        spe = self.job.steps_per_epoch
        epoch = self._progress[0] // spe
        apart = self.simulation.consensus() / float(self.simulation.mean().norm())
        self._lines[0].progress.metrics.write(
            step=epoch * spe,
            epoch=float(epoch),
            distance_from_mean=apart,
            **(self._landscape() if math.isfinite(apart) else {}),
        )

    def _landscape(self) -> dict[str, float]:
        """Metrics of the run's probe, if it has one."""
        probe = self.learners.probe
        if probe is None:
            return {}

        def weights(node: int) -> Tensor:
            row = torch.empty_like(self.simulation.gradient)
            self.nodes[node].engine.learner.snapshot(row)
            return row

        found = self.learners.minibatches.compute(lambda: probe.measure(weights))
        self.simulation.show(self.nodes[0])
        return found.metrics()

    def save(self) -> None:
        """Write the states of all nodes, which stand still."""
        job, start = self.job, self.job.checkpoints.start()
        for node in reversed(self.nodes):  # the first one's last: with it old checkpoints go
            state: dict[str, Any] = node.engine.state_dict()
            state |= {"virtual_seconds": node.ended, "complete": self._complete, "dead": {}}
            state["enough"] = job.enough
            state |= self._kept[node.index].state()
            meeting = replace(job.meeting, place=Place(rank=node.index, world=len(self.nodes)))
            keep = job.settings.training.keep_checkpoints
            checkpoints = Checkpoints(job.checkpoints.folder, meeting, keep, start=start)
            checkpoints.save(state, node.engine)
            checkpoints.settle()  # one copy at a time

    @property
    def _complete(self) -> bool:
        """Whether all nodes have applied their last gradients."""
        return all(node.engine.mixer.finished for node in self.nodes)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """While the block runs, nodes tell of their steps, in rows after those of a checkpoint."""
        notices: dict[str, dict[int, Any]] = {}
        process = (self.job.checkpoints.start(), 0)
        now = self.simulation.clock.now
        for node in self.nodes:
            done = self._progress[node.index]
            progress = Progress(
                SharedBoard(node.index, notices),
                Metrics(self.job.out, rank=node.index, step=done, process=process),
                node.engine,
                epoch=done // self.job.steps_per_epoch,
                steps_per_epoch=self.job.steps_per_epoch,
                epochs=self.job.settings.training.epochs,
                every_seconds=self.job.every_seconds,
                stamp=lambda: {"virtual_seconds": now()},
                early_stop=self.job.settings.training.early_stop,
            )
            self._lines.append(Line(progress, Meter(node.engine, now)))
        try:
            yield
        finally:
            for line in self._lines:
                line.progress.close()

    def _stepped(self, node: Node, step: Step) -> None:
        """After a node's update."""
        if self.asked.is_set():
            raise Stopped
        job, line, nodes = self.job, self._lines[node.index], len(self.nodes)
        at = step.step if step.block is None else step.block // nodes
        self._progress[node.index] = done = max(self._progress[node.index], at + 1)
        report = Report(
            norm=step.norm, staleness=step.staleness, exposed=step.exposed, skipped=step.skipped
        )
        line.meter.add(loss=step.loss, frames=self._frames(node, step), report=report)
        line.progress.tell(step=done, lr=self.learners.setting.rate(at), meter=line.meter)
        passed = done // job.steps_per_epoch
        if node.index == 0 and passed > line.progress.epoch and done < job.total:
            self.simulation.request_stop()
        self._evaluate(node, passed=passed)

    def _evaluate(self, node: Node, *, passed: int) -> None:
        """Of epochs that have been passed: what is kept of weights, the node's share of scores."""
        progress = self._lines[node.index].progress
        if progress.epoch >= passed:
            return
        self._kept[node.index].passed(range(progress.epoch + 1, passed + 1), node.engine)
        self.simulation.show(node)
        share = self.job.dev_feed.share(rank=node.index, learners=len(self.nodes))
        score = self.learners.minibatches.compute(lambda: evaluate(self.job.criterion, share))
        for epoch in range(progress.epoch + 1, passed + 1):
            progress.evaluated(score, epoch)

    def _frames(self, node: Node, step: Step) -> int:
        size, frames = self.learners.setting.size, self.learners.minibatches.frames
        part = node.index if step.block is None else step.block % len(self.nodes)
        return sum(frames[part * size + member] for member in range(size))
