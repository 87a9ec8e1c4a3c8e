"""One process of `gpu_engine.py`: a bare loop or the engine on its share of a device, timed."""

from __future__ import annotations

import faulthandler
import gc
import math
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import SupportsFloat

import torch
from gpu_tools import FRAMES

from hadpsgd.config import RunSettings, check, settings_of
from hadpsgd.decentralized.network import rendezvous
from hadpsgd.decentralized.strategies.mixing_engine import DecentralizedEngine
from hadpsgd.models.blstm import BLSTM
from hadpsgd.training import arithmetic
from hadpsgd.training.criterion import CrossEntropy
from hadpsgd.training.engines import engine_of
from hadpsgd.training.gradients import Gradients

BARE = "bare"
RATE, MOMENTUM = 0.01, 0.9
WARM_UP, TRIED = 5, 4
"""Steps before those that tell how long one takes, and those."""
THREADS = 2  # on a GPU; processors are short of cores
SECONDS = 40.0
"""That processes wait for each other."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """The model, and a learner's minibatch."""

    layers: int
    cells: int
    projection: int
    pdfs: int
    dim: int
    batch: int
    """Subsequences."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is timed: `world` processes at once."""

    strategy: str
    """Of the engine; `BARE`: each process has a loop of its own, without it."""
    size: Size
    device: str
    world: int = 1
    members: int = 1
    """Learners of a super-learner."""
    wire: str = "float32"
    port: int = 0
    folder: Path = Path()
    """For records."""

    @property
    def name(self) -> str:
        """Short."""
        wire = "" if self.wire == "float32" else f" {self.wire}"
        size = f"{self.size.layers}x{self.size.cells} {self.size.batch}"
        groups = f" {self.world // self.members}x{self.members}" if self.members > 1 else ""
        return f"{self.strategy}{wire}{groups} {size}"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What one process saw of the steps that were timed."""

    moments: list[float]
    """The beginning, and the end of each step: seconds of a clock that all processes share."""
    gradients: float
    """Seconds of a forward and backward pass, where that is known."""
    exposed: float
    """Seconds of a step that waited for communication."""
    rounds: int
    mixing: float
    """Seconds of the communication thread in rounds."""
    sent: int
    """Bytes."""
    loss: float
    gib: float
    """Of the device, by this process, at most."""


@dataclass
class Running:
    """A loop under way: a step, told whether it is the last, returns the loss."""

    step: Callable[[bool], float]
    finish: Callable[[], None] = lambda: None
    engine: DecentralizedEngine | None = None
    gradients: float = 0.0
    exposed: float = 0.0

    def counts(self) -> tuple[float, float, int, float, int]:
        """All sums so far, as `Trial` has them."""
        rounds, mixing, sent = 0, 0.0, 0
        if (engine := self.engine) is not None:
            rounds, mixing, sent = engine.rounds, engine.mixer.seconds, engine.bytes_sent
        return self.gradients, self.exposed, rounds, mixing, sent


def serve(rank: int, device: str, pipe: Connection) -> None:
    """The process: cases come, trials or errors go, until nothing more comes."""
    faulthandler.register(signal.SIGUSR2)
    torch.set_num_threads(THREADS if device == "cuda" else 1)
    synchronise = torch.cuda.synchronize if device == "cuda" else lambda: None
    if device == "cuda":
        torch.cuda.set_device(0)
        torch.ones(1, device=device)  # makes the context
        synchronise()
    pipe.send("here")
    while (case := pipe.recv()) is not None:
        try:
            pipe.send(trial(rank, case, pipe, synchronise))
        except BaseException as error:
            sys.stderr.write(f"rank {rank}, {case.name}:\n{traceback.format_exc()}\n")
            sys.stderr.flush()
            pipe.send(f"rank {rank}: {type(error).__name__}: {error}")
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


def trial(rank: int, case: Case, pipe: Connection, synchronise: Callable[[], None]) -> Trial:
    """Warm up, tell how long a step takes, hear how many are timed, do them."""
    with (bare if case.strategy == BARE else ours)(rank, case) as running:
        for _ in range(WARM_UP):
            running.step(False)
        begin = time.monotonic()
        for _ in range(TRIED):
            running.step(False)
        synchronise()
        pipe.send((time.monotonic() - begin) / TRIED)
        steps: int = pipe.recv()
        moments = [time.monotonic()]
        before, loss = running.counts(), math.nan
        for number in range(steps):
            loss = running.step(number + 1 == steps)
            if number + 1 == steps:
                synchronise()
            moments.append(time.monotonic())
        gradients, exposed, rounds, mixing, sent = (
            after - first for after, first in zip(running.counts(), before, strict=True)
        )
        running.finish()
        synchronise()
    gib = torch.cuda.max_memory_allocated() / 2**30 if case.device == "cuda" else 0.0
    return Trial(
        moments=moments,
        gradients=gradients / steps,
        exposed=exposed / steps,
        rounds=int(rounds),
        mixing=mixing,
        sent=int(sent),
        loss=loss,
        gib=gib,
    )


def model_and_data(rank: int, case: Case) -> tuple[BLSTM, torch.Tensor, torch.Tensor]:
    """The same model in all processes; a minibatch of random numbers, on the device."""
    size = case.size
    shape = SimpleNamespace(
        layers=size.layers,
        cells=size.cells,
        projection=size.projection,
        dropout=0.0,
        frames_per_step=1,
    )
    model = BLSTM(shape, input_dim=size.dim, num_pdfs=size.pdfs, seed=1).to(case.device).train()
    draws = torch.Generator().manual_seed(rank)
    x = torch.randn(size.batch, FRAMES, size.dim, generator=draws)
    y = torch.randint(size.pdfs, (size.batch, FRAMES), generator=draws)
    return model, x.to(case.device), y.to(case.device)


def way_of(case: Case) -> str:
    """bf16 on GPUs; not every processor can."""
    return arithmetic.AUTOCAST if case.device == "cuda" else arithmetic.FP32


@contextmanager
def bare(rank: int, case: Case) -> Iterator[Running]:
    """A loop as PyTorch's users write it."""
    model, x, y = model_and_data(rank, case)
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM, fused=True)
    way, device = way_of(case), torch.device(case.device)

    def step(last: bool) -> float:  # noqa: ARG001
        with arithmetic.mode(way, device):
            loss = model.loss(x, y)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        return loss.item()

    yield Running(step)


def settings(case: Case) -> RunSettings:
    """As a config has them."""
    size = case.size
    run: dict[str, object] = {"name": "run", "strategy": case.strategy, "learners": case.world}
    if case.members > 1:
        run["super_learner"] = case.members
    if case.wire != "float32":
        run["wire"] = case.wire
    model = {"layers": size.layers, "cells": size.cells, "projection": size.projection}
    training = {"momentum": MOMENTUM, "runs": [run]}
    content = {"name": "gpu", "corpus": {"kind": "builtin"}, "model": model, "training": training}
    return settings_of(check(content, "gpu"), "run")


@contextmanager
def ours(rank: int, case: Case) -> Iterator[Running]:
    """The engine of `hadpsgd train`; between processes by the host's memory."""
    env = {"RANK": rank, "WORLD_SIZE": case.world, "LOCAL_WORLD_SIZE": case.world}
    os.environ.update({name: str(value) for name, value in env.items()})
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(case.port))
    chosen = settings(case)
    size = chosen.run.shared_gradients
    meeting = rendezvous.meet(learners=case.world, size=size, agree_on="gpu", seconds=SECONDS)
    model, x, y = model_and_data(rank, case)
    module, device = CrossEntropy(model), torch.device(case.device)
    engine = engine_of(chosen, module, meeting, 1000, case.folder, by_host=True)
    assert isinstance(engine, DecentralizedEngine)
    gradients = Gradients(engine.module, chosen, device, arithmetic=way_of(case))
    frames = y.numel()

    def backward(member: int) -> tuple[SupportsFloat, int]:  # noqa: ARG001
        return gradients.take(x, y, rank=rank, step=engine.steps), frames

    def step(last: bool) -> float:
        begin = time.monotonic()
        loss, _ = engine.take(backward)
        running.gradients += time.monotonic() - begin
        running.exposed += engine.step(RATE, last=last).exposed
        return float(loss)

    def finish() -> None:
        while not engine.over:  # others may still need this one's mixes
            engine.serve()

    running = Running(step, finish, engine)
    with engine:
        yield running
