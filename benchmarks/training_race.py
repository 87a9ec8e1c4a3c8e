"""A race of `training.py`: all processes of one contestant, forked, timed, collected."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import pickle
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import torch
from ports import free_port
from training_contestants import CONTESTANTS, TORCHFT, USUAL_HEAP, Task
from training_links import Hosts

from hadpsgd.decentralized.core.heap import keep_freed_memory

WARM_UP = 5
TIMEOUT = 60.0
SLOW = 1
"""The rank that is slow where one is."""
HELD_OUT_EVERY = 4
"""Steps between two looks at the held-out loss."""


@dataclass(frozen=True)
class Trial:
    """What one process saw."""

    moments: list[float]
    """End of each step, seconds of a clock that all processes share."""
    loss: float
    rounds: int
    sent: int
    waited: float
    """Share of the time spent waiting for communication; NaN where it is not known."""
    cpu: float
    """Seconds of a core that it needed for a step."""
    held_out: list[tuple[float, float]]
    """(moment, loss)"""
    waits: list[tuple[float, float]]
    """Step by step: when its gradient was ready, seconds that it waited; where it is known."""
    group: int
    """Processes that average their gradients."""


@dataclass(frozen=True)
class Score:
    """A contestant in one repetition."""

    steps_per_second: float
    """Of all processes together."""
    each: float
    """Of a process."""
    mixes_per_step: float
    waited: float
    exchange: float
    """Share of the time between the moment when the last process of a group was ready and the end
    of the waiting; NaN where nobody waits for a group."""
    megabytes_per_step: float
    cpu_per_step: float
    """Seconds of a core."""
    loss: float
    held_out: list[tuple[float, float]] = field(default_factory=list)
    """(seconds since the first step, held-out loss), means over the processes"""


@dataclass(frozen=True)
class Race:
    """How a contestant runs."""

    world: int
    steps: int
    """Of each process, the warm-up included."""
    slow: int = 1
    """How many times longer the gradients of learner `SLOW` take."""
    held_out: bool = False
    hosts: Hosts | None = None
    """Where the processes run; this host if None."""

    @cached_property
    def start(self) -> Barrier:
        """All begin at the same moment."""
        return multiprocessing.get_context("fork").Barrier(self.world)


def process(rank: int, name: str, task: Task, race: Race) -> Trial:
    """One process of a contestant."""
    if name != USUAL_HEAP:  # whether the C library clears pages anew is luck: the same for all
        keep_freed_memory()
    moments: list[float] = []
    cpu: list[float] = []
    losses: list[float] = []
    held_out: list[tuple[float, float]] = []
    ballast = task.model()
    unseen = next(task.batches(10_000))
    with CONTESTANTS[name](task, rank, race.world) as running:
        batches = task.batches(rank)
        race.start.wait(TIMEOUT)
        for number in range(race.steps):
            x, y = next(batches)
            for _ in range(race.slow - 1 if rank == SLOW else 0):
                ballast(x, y).backward()
            losses.append(running.step(x, y, number + 1 == race.steps))
            moments.append(time.monotonic())
            cpu.append(time.process_time())
            if race.held_out and number % HELD_OUT_EVERY == 0:
                with torch.no_grad():
                    held_out.append((moments[-1], float(running.module(*unseen))))
        running.finish()
        rounds, sent = running.rounds(), running.sent()
    span = moments[-1] - moments[0]
    waited = sum(running.waited[1:]) / span if running.waited else float("nan")
    waits = list(zip(running.arrived, running.waited, strict=True))
    needed = (cpu[-1] - cpu[WARM_UP - 1]) / (race.steps - WARM_UP)
    loss = statistics.mean(losses[-5:])
    return Trial(moments, loss, rounds, sent, waited, needed, held_out, waits, running.group)


def run(name: str, task: Task, race: Race) -> Score | str:
    """Run a contestant once; a line of why if it failed."""
    race = replace(race)  # with a new barrier
    assert race.start.parties == race.world
    silent = name == TORCHFT
    with surroundings(name, race.world, race.hosts) as env:
        pipes = [
            fork(rank, env, partial(process, rank, name, task, race), race.hosts, silent=silent)
            for rank in range(race.world)
        ]
        trials = [collect(pid, pipe) for pid, pipe in pipes]
    errors = [trial for trial in trials if isinstance(trial, str)]
    if errors:
        print(*errors, sep="\n", file=sys.stderr)
    return errors[0] if errors else score([t for t in trials if isinstance(t, Trial)], race)


@contextmanager
def surroundings(name: str, world: int, hosts: Hosts | None) -> Iterator[dict[str, str]]:
    """What a contestant's processes need beside them; their environment."""
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(world)}
    env |= {"LOCAL_WORLD_SIZE": str(world), "FT_PORT": str(free_port())}
    if hosts is not None:
        env |= hosts.env
    if name != TORCHFT:
        yield env
        return
    with lighthouse(world) as address:
        yield env | {"FT_LIGHTHOUSE": address}


@contextmanager
def lighthouse(learners: int) -> Iterator[str]:
    """torchft's, in a process of its own: its threads in this one might hold locks in a fork."""
    from torchft.coordination import LighthouseServer

    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        silence()
        server = LighthouseServer(bind="127.0.0.1:0", min_replicas=learners)
        os.write(writing, server.address().encode())
        signal.alarm(10 * int(TIMEOUT))
        signal.pause()
    try:
        yield os.read(reading, 1000).decode()
    finally:
        os.close(reading)
        os.close(writing)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def silence() -> None:
    """Nothing more on stderr: torchft reports every quorum."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def score(trials: Sequence[Trial], race: Race) -> Score:
    """Steps that ended while all that are looked at were at work.

    With a slow learner these are those outside of its super-learner.
    """
    watched = trials[2:] if race.slow > 1 else trials
    begin = max(trial.moments[WARM_UP - 1] for trial in watched)
    end = min(trial.moments[-1] for trial in watched)
    counts = [sum(begin < moment <= end for moment in trial.moments) for trial in watched]
    first = min(trial.moments[0] for trial in trials)
    looks = zip(*(trial.held_out for trial in trials), strict=True)
    return Score(
        sum(counts) / (end - begin),
        statistics.mean(counts) / (end - begin),
        statistics.mean(trial.rounds for trial in trials) / race.steps,
        statistics.mean(trial.waited for trial in trials),
        exchange(trials),
        statistics.mean(trial.sent for trial in trials) / race.steps / 1e6,
        statistics.mean(trial.cpu for trial in trials),
        statistics.mean(trial.loss for trial in trials),
        [
            (statistics.mean(m for m, _ in look) - first, statistics.mean(loss for _, loss in look))
            for look in looks
        ],
    )


def exchange(trials: Sequence[Trial]) -> float:
    """Of the waiting, what came after the last of a group was ready: the clock is one for all."""
    size = trials[0].group
    if size == 1:
        return float("nan")
    shares = []
    for first in range(0, len(trials), size):
        members = trials[first : first + size]
        steps = list(zip(*(trial.waits for trial in members), strict=True))[1:]
        lasts = [max(arrived for arrived, _ in step) for step in steps]
        for trial in members:
            seconds = sum(
                min(waited, max(0.0, arrived + waited - last))
                for (arrived, waited), last in zip(trial.waits[1:], lasts, strict=True)
            )
            shares.append(seconds / (trial.moments[-1] - trial.moments[0]))
    return statistics.mean(shares)


def fork(
    rank: int,
    env: dict[str, str],
    work: Callable[[], object],
    hosts: Hosts | None = None,
    *,
    silent: bool = False,
) -> tuple[int, int]:
    """A process that does `work`, with a pipe for what comes of it; `silent`: nothing on stderr."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    os.close(reading)
    os.environ.update(env, RANK=str(rank))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(TIMEOUT))
    faulthandler.dump_traceback_later(TIMEOUT - 5)
    if silent:
        silence()
    result: object
    try:
        if hosts is not None:
            hosts.enter(rank)
        result = work()
    except BaseException as error:
        result = "".join(traceback.format_exception_only(error)).strip().splitlines()[0]
    with os.fdopen(writing, "wb") as stream:
        pickle.dump(result, stream)
    os._exit(0)


def collect(pid: int, pipe: int) -> Any:
    """What came of it, or a line of why nothing did."""
    with os.fdopen(pipe, "rb") as stream:
        content = stream.read()
    os.waitpid(pid, 0)
    return pickle.loads(content) if content else f"no answer within {TIMEOUT:.0f} s"


def cpu() -> str:
    """Its name, as far as Linux tells."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), "")
