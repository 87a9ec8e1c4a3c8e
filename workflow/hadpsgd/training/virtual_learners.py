"""All learners of a run in one process: what they share, and simulations made of it.

Memory: one module, one gradient and one minibatch's activations for all; for each learner its
weights, its momentum, its snapshots and its mixes (docs/virtual-runs.md).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from torch import nn

from hadpsgd.decentralized.core.buffers import Flat
from hadpsgd.decentralized.record.record import Recorder
from hadpsgd.decentralized.simulated.node import Node, Setting, Step
from hadpsgd.decentralized.simulated.simulation import Simulation
from hadpsgd.training.data import Feed
from hadpsgd.training.gradients import Gradients
from hadpsgd.training.probe import Probe

Found = TypeVar("Found")


class Minibatches:
    """The run's examples as a problem of the simulation.

    All computing is done by one thread: each of the learners' would keep a heap and, with several
    threads, a team of its own.
    """

    def __init__(self, gradients: Gradients, feed: Feed) -> None:
        self.module: nn.Module = gradients.module
        self.frames: dict[int, int] = {}
        """Learner -> frames of its last minibatch."""
        self._gradients = gradients
        self._feed = feed
        self._computing = ThreadPoolExecutor(1, thread_name_prefix="computing")

    def gradient(self, *, learner: int, step: int) -> float:
        """See `Problem`: the same minibatch and dropout as those of a process of its own."""
        return self.compute(lambda: self._take(learner, step))

    def compute(self, work: Callable[[], Found]) -> Found:
        """What `work` returns, done by the computing thread."""
        return self._computing.submit(work).result()

    def _take(self, learner: int, step: int) -> float:
        x, targets = self._feed.example(step=step, rank=learner)
        self.frames[learner] = targets.numel()
        return float(self._gradients.take(x, targets, rank=learner, step=step))


class VirtualLearners:
    """Makes simulations of a run, one after the other; all use the module's buffers `flat`."""

    def __init__(
        self,
        setting: Setting,
        minibatches: Minibatches,
        flat: Flat,
        recorder: Callable[[int], Recorder],
        *,
        skip_not_finite: bool,
        probe: Probe | None = None,
    ) -> None:
        self.setting = setting
        self.minibatches = minibatches
        self.probe = probe
        """Measures the loss around the learners' weights whenever they stand still."""
        self.seconds = 0.0
        """Virtual seconds of the run, known at its end."""
        self._flat = flat
        self._recorder = recorder
        self._skip_not_finite = skip_not_finite

    def simulation(self, on_step: Callable[[Node, Step], None] = lambda _, __: None) -> Simulation:
        """Of learners at the weights of `flat`, or where their engines are told to resume."""
        return Simulation(
            self.setting,
            self.minibatches,
            recorder=self._recorder,
            on_step=on_step,
            skip_not_finite=self._skip_not_finite,
            flat=self._flat,
        )
