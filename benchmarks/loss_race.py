"""One contestant of `time_to_loss.py`: its processes, what they wrote, its curve.

A gradient takes a given time: the process sleeps, then computes a real, small one. A slow learner
sleeps longer. So learners need no core of their own, and a slow one leaves its core to nobody who
did not have it. While it trains, a thread of each process writes down its weights every few
hundredths of a second; the held-out loss of their mean is computed when the race is over.

Our contestants are the training loop of `hadpsgd train` as it stands.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import resource
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np
import torch
from loss_task import SEED, HeldOut, LossTask
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector
from training_contestants import CONTESTANTS, TORCHFT, leave_together
from training_links import Hosts
from training_race import TIMEOUT, collect, fork, surroundings

from hadpsgd.config import settings_of
from hadpsgd.decentralized.core.heap import keep_freed_memory
from hadpsgd.decentralized.strategies.mixing_engine import DecentralizedEngine
from hadpsgd.training.engines import injection_of
from hadpsgd.training.job import Job, assemble
from hadpsgd.training.loop import train

PEERS = ("torch DDP", TORCHFT, "Decent-DP ring")
OURS: dict[str, dict[str, Any]] = {
    "ssgd": {"strategy": "ssgd"},
    "local": {"strategy": "local", "average_every": 8},
    "d1d": {"strategy": "d1d"},
    "dpsgd": {"strategy": "dpsgd"},
    "adpsgd": {"strategy": "adpsgd"},
    "adpsgd, random partner": {"strategy": "adpsgd", "schedule": "random-partner"},
    "rand": {"strategy": "rand"},
    "hadpsgd 4x2": {"strategy": "hadpsgd", "super_learner": 2},
    "hadpsgd 8x2": {"strategy": "hadpsgd", "super_learner": 2, "learners": 16},
}
"""Keys of a run in the config; 8 learners where they do not say."""
LEARNERS = 8
SLOW = 1
"""The learner that is slow where one is."""


@dataclass(frozen=True, kw_only=True)
class Race:
    """How a contestant runs."""

    task: LossTask
    name: str
    seconds: float
    """Of a gradient of a learner that nothing slows."""
    injected: dict[str, Any] = field(default_factory=dict)
    """As in the config."""
    hosts: Hosts | None = None
    limit: float = 60.0
    """Seconds after which it is stopped, whatever it has reached."""
    every: float = 0.1
    """Seconds between two looks at the weights."""
    learners: int = LEARNERS

    @property
    def world(self) -> int:
        """Processes."""
        return int(OURS.get(self.name, {}).get("learners", self.learners))

    @property
    def run(self) -> dict[str, Any]:
        """In the config; peers' runs say how they are slowed, and are not trained."""
        kind = OURS.get(self.name, {"strategy": "ddp"})
        return {"name": "it", "injected": self.injected, **kind, "learners": self.world}

    def log(self, rank: int) -> Path:
        """What a learner's thread writes."""
        return self.task.folder / f"look-{rank}.bin"

    @property
    def look(self) -> np.dtype[Any]:
        """One entry of it; moments of a clock that all processes share."""
        entries = [("moment", "f8"), ("steps", "i8"), ("rounds", "i8")]
        return np.dtype([*entries, ("weights", "f4", (self.task.parameters,))])


@dataclass(frozen=True, kw_only=True)
class Result:
    """Of one race; times are seconds since its processes began to train."""

    curve: list[tuple[float, float]]
    """(time, held-out loss of the mean of the learners' weights)"""
    work: list[tuple[float, int]]
    """(time, gradients of all learners)"""
    steps: list[int]
    """Gradients of each learner until all were done, or until it was stopped."""
    mixes: list[int]
    """As `steps`."""
    wanted: int
    """Gradients of the whole run."""
    own_cores: float
    """Cores that the contestant kept busy in the mean."""
    load: float
    """Of the machine when the race began."""

    def reaches(self, goal: float) -> float:
        """Time when the loss is there for the first time, between two looks by a straight line."""
        for (t, high), (u, low) in zip(self.curve, self.curve[1:], strict=False):
            if low <= goal:
                return u if high <= goal else t + (u - t) * (high - goal) / (high - low)
        return float("inf")

    @property
    def done(self) -> float:
        """Time when all gradients were applied."""
        return next((t for t, count in self.work if count >= self.wanted), float("inf"))

    @property
    def span(self) -> float:
        """Until then, or until it was stopped."""
        return min(self.done, self.work[-1][0])


# --- a process ---


class Looks:
    """A thread that writes weights and counters into a file."""

    def __init__(self, file: Path, entry: np.dtype[Any], every: float) -> None:
        self._stream = file.open("wb")
        self._entry = np.zeros(1, entry)
        self._every = every
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @contextmanager
    def at(self, look: Callable[[], tuple[int, int, NDArray[np.float32]]]) -> Iterator[None]:
        """Until the block ends; `look` gives steps, rounds, weights."""
        self._look = look
        self._write()
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join()
            self._write()
            self._stream.close()

    def _watch(self) -> None:
        while not self._over.wait(self._every):
            self._write()

    def _write(self) -> None:
        steps, rounds, weights = self._look()
        self._entry[0] = (time.monotonic(), steps, rounds, weights)
        self._stream.write(self._entry.tobytes())
        self._stream.flush()


def process(rank: int, race: Race, start: Barrier) -> str:
    """Of any contestant; "" for its success."""
    try:
        (ours if race.name in OURS else theirs)(rank, race, start)
    except BaseException:
        start.abort()  # the others need not wait for it
        raise
    return ""


def ready(race: Race, start: Barrier) -> None:
    """All begin together; from here on a contestant has its limit."""
    start.wait(TIMEOUT)
    faulthandler.cancel_dump_traceback_later()
    signal.setitimer(signal.ITIMER_REAL, race.limit)


def ours(rank: int, race: Race, start: Barrier) -> None:
    """`hadpsgd train`."""
    folder = race.task.folder
    job = assemble(
        race.task.config, "it", egs=folder / "train", dev_egs=folder / "dev", out=folder / "out"
    )
    take_long(job, race)
    assert isinstance(job.engine, DecentralizedEngine)
    learner = job.engine.learner
    flat, shot = learner.flat, torch.empty_like(learner.weights)
    slots = {id(slot.parameter): slot for slot in flat.slots}
    inorder = [slots[id(p)] for p in job.model.parameters()]

    def look() -> tuple[int, int, NDArray[np.float32]]:
        learner.snapshot(shot)
        weights = torch.cat([slot.of(shot).reshape(-1) for slot in inorder])
        return learner.steps, learner.rounds, weights.numpy()

    ready(race, start)
    with Looks(race.log(rank), race.look, race.every).at(look):
        train(job)
    assert job.meeting.store is not None
    leave_together(job.meeting.store, rank, race.world)


def take_long(job: Job, race: Race) -> None:
    """Gradients need their time."""
    take, rest = job.gradients.take, race.seconds - own_seconds(race)

    def long(x: Tensor, targets: Tensor, *, rank: int, step: int) -> float:
        time.sleep(rest)
        return float(take(x, targets, rank=rank, step=step))

    job.gradients.take = long  # type: ignore[method-assign]


def own_seconds(race: Race) -> float:
    """What the real gradient needs of a core."""
    module = race.task.model()
    x, y = race.task.feed(0, race.world).example(step=0, rank=0)
    needed = []
    for _ in range(5):
        begin = time.thread_time()
        module(x, y).backward()
        needed.append(time.thread_time() - begin)
    return min(statistics.median(needed), race.seconds)


def theirs(rank: int, race: Race, start: Barrier) -> None:
    """A peer's bare loop over its share of the same minibatches."""
    keep_freed_memory()
    torch.set_num_threads(1)
    task = race.task
    settings = settings_of(task.config, "it")
    injection = injection_of(settings.run, SEED)
    rest = race.seconds - own_seconds(race)
    done = 0
    with CONTESTANTS[race.name](task, rank, race.world) as running:
        batches = task.feed(rank, race.world).batches(0)

        def look() -> tuple[int, int, NDArray[np.float32]]:
            return done, running.rounds(), vector(running.module)

        ready(race, start)
        with Looks(race.log(rank), race.look, race.every).at(look):
            for step in range(task.steps):
                x, y = next(batches)
                pause = injection.pause(learner=rank, step=step, seconds=race.seconds)
                time.sleep(rest + pause)
                running.step(x, y, step + 1 == task.steps)
                done += 1
        running.finish()


def vector(module: nn.Module) -> NDArray[np.float32]:
    """All parameters."""
    return parameters_to_vector(module.parameters()).detach().numpy()


# --- the race ---


def run(race: Race, held_out: HeldOut) -> Result | str:
    """One contestant, once; a line of why if it failed."""
    start = multiprocessing.get_context("fork").Barrier(race.world)
    load, used = os.getloadavg()[0], children_seconds()
    begin = time.monotonic()
    with surroundings(race.name, race.world, race.hosts) as env:
        pipes = [
            fork(rank, env, partial(process, rank, race, start), race.hosts, silent=True)
            for rank in range(race.world)
        ]
        answers = [collect(pid, pipe) for pid, pipe in pipes]
    cores = (children_seconds() - used) / (time.monotonic() - begin)
    logs = [read(race, rank) for rank in range(race.world)]
    wrong = [answer for answer in answers if answer]
    stopped = all(
        len(log) and log["moment"][-1] - log["moment"][0] > 0.9 * race.limit for log in logs
    )
    if wrong and not stopped:
        return "; ".join(sorted(set(map(str, wrong))))
    return result(race, logs, held_out, cores=cores, load=load)


def read(race: Race, rank: int) -> NDArray[Any]:
    """What a learner's thread wrote; whole entries only."""
    file, size = race.log(rank), race.look.itemsize
    if not file.exists():
        return np.zeros(0, race.look)
    content = file.read_bytes()
    return np.frombuffer(content[: len(content) // size * size], race.look)


def children_seconds() -> float:
    """Of cores, used by processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def result(
    race: Race, logs: list[NDArray[Any]], held_out: HeldOut, *, cores: float, load: float
) -> Result:
    """The learners' entries at equal moments, put together."""
    begin = min(log["moment"][0] for log in logs)
    end = max(log["moment"][-1] for log in logs)
    moments = np.append(np.arange(begin, end, race.every), end)
    places = [np.searchsorted(log["moment"], moments, side="right").clip(1) - 1 for log in logs]
    work = sum(log["steps"][place] for log, place in zip(logs, places, strict=True))
    wanted = race.task.steps * race.world
    last = int(np.argmax(work >= wanted)) if work[-1] >= wanted else len(moments) - 1
    means = (
        np.mean([log["weights"][place[k]] for log, place in zip(logs, places, strict=True)], axis=0)
        for k in range(last + 1)
    )
    return Result(
        curve=[(float(t - begin), held_out.loss(w)) for t, w in zip(moments, means, strict=False)],
        work=[(float(t - begin), int(n)) for t, n in zip(moments, work, strict=True)],
        steps=[int(log["steps"][place[last]]) for log, place in zip(logs, places, strict=True)],
        mixes=[int(log["rounds"][place[last]]) for log, place in zip(logs, places, strict=True)],
        wanted=wanted,
        own_cores=cores,
        load=load,
    )
