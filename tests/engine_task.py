"""A small BLSTM task whose gradients can be taken anywhere, and engine runs on it in processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch._dynamo  # DDP would import it in every process, for seconds
import torch.distributed as dist
from processes import run
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from hadpsgd.decentralized import assembly
from hadpsgd.decentralized.core.buffers import flatten
from hadpsgd.decentralized.core.events import Event
from hadpsgd.decentralized.core.sgd import Sgd
from hadpsgd.decentralized.network import rendezvous
from hadpsgd.decentralized.network.injectors import Injection
from hadpsgd.decentralized.strategies import registry as strategies
from hadpsgd.decentralized.strategies.mixing_engine import DecentralizedEngine
from hadpsgd.models.blstm import BLSTM
from hadpsgd.training.criterion import CrossEntropy

SHAPE = SimpleNamespace(layers=1, cells=4, projection=4, dropout=0.0, frames_per_step=1)
DIM, PDFS, FRAMES, BATCH = 3, 5, 4, 3


def make_model(dtype: torch.dtype, seed: int = 0) -> BLSTM:
    """The model that all learners start from."""
    return BLSTM(SHAPE, input_dim=DIM, num_pdfs=PDFS, seed=seed).to(dtype)


def batch(learner: int, step: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Minibatch number `step` of a learner: the label is the largest of fixed projections."""
    draws = np.random.default_rng([7, learner, step])
    x = draws.normal(size=(BATCH, FRAMES, DIM))
    labels = (x @ np.random.default_rng(7).normal(size=(DIM, PDFS))).argmax(-1)
    return torch.from_numpy(x).to(dtype), torch.from_numpy(labels)


def dense_gradient() -> Callable[[int, int, np.ndarray], np.ndarray]:
    """The oracle's gradients: the same model in float64, at any weights [P]."""
    model = make_model(torch.float64)
    flat = flatten(model)

    def gradient(learner: int, step: int, weights: np.ndarray) -> np.ndarray:
        flat.weights.copy_(torch.from_numpy(weights[: flat.elements]))
        flat.gradient.zero_()
        with torch.enable_grad():
            model.loss(*batch(learner, step, torch.float64)).backward()
        out = np.zeros_like(weights)
        out[: flat.elements] = flat.gradient.numpy()
        return out

    return gradient


@dataclass
class Setup:
    """A run of the engine."""

    strategy: strategies.Choice
    schedule: str = "ring"
    learners: int = 4
    size: int = 1
    steps: int = 20
    dtype: torch.dtype = torch.float64
    sgd: Sgd = field(default_factory=lambda: Sgd(momentum=0.9))
    jitter: float = 0.0
    """Longest pause of a gradient, seconds; drawn anew for each."""
    slow: float = 1.0
    """How many times longer those of learner 0 are."""
    injection: Injection | None = None
    by_host: bool = False
    """Exchange copies, as learners on GPUs do."""
    device: str = "cpu"


@dataclass
class Result:
    """What a learner ends with."""

    start: np.ndarray
    weights: np.ndarray
    parameters: np.ndarray
    """The weights without the gaps between parameters, in the module's order."""
    events: list[Event]
    rounds: int
    bytes_sent: int
    peer_bytes: int
    """Of them, to other super-learners."""
    seconds: float
    """Of all steps together."""


def rate(step: int) -> float:
    """A learning rate that changes."""
    return 0.5 / (1 + step % 3)


def leave_together(meeting: rendezvous.Meeting) -> None:
    """Rank 0 hosts the store that the others may still talk to: it leaves last."""
    if meeting.store is None:
        return
    store, place = meeting.prefixed("left"), meeting.place
    store.set(str(place.rank), "")
    if place.rank == 0:
        rendezvous.wait_for_keys(store, [str(rank) for rank in range(place.world)], 20)


def ddp_learner(rank: int, setup: Setup) -> np.ndarray:
    """One process of torch DDP on the same task, nothing of the engine; its parameters."""
    meeting = rendezvous.meet(learners=setup.learners, size=1, agree_on="same", seconds=20)
    rendezvous.process_group("ddp", meeting, rank=rank, size=setup.learners)
    model = DistributedDataParallel(CrossEntropy(make_model(setup.dtype)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=setup.sgd.momentum)
    for step in range(setup.steps):
        optimizer.param_groups[0]["lr"] = rate(step)
        optimizer.zero_grad()
        model(*batch(rank, step, setup.dtype)).backward()
        optimizer.step()
    flat = torch.nn.utils.parameters_to_vector(model.parameters()).detach().double().numpy()
    dist.barrier()  # nobody closes connections that others still read from
    dist.destroy_process_group()
    leave_together(meeting)
    return flat


def learner(rank: int, setup: Setup) -> Result:
    """One process."""
    events: list[Event] = []
    model = make_model(setup.dtype).to(setup.device)  # a GPU takes seconds to begin
    patience = 20 if setup.device == "cpu" else 60
    meeting = rendezvous.meet(
        learners=setup.learners, size=setup.size, agree_on="same", seconds=patience
    )
    engine = assembly.build(
        model,
        setup.sgd,
        strategies.create(setup.strategy),
        setup.schedule,
        meeting,
        seed=5,
        record=events.append,
        injection=setup.injection,
        by_host=setup.by_host,
    )
    start = on_host(engine.learner.weights, engine, model)
    draws = np.random.default_rng([11, rank])
    with engine:
        begin = time.monotonic()
        while engine.steps < setup.steps:
            x, y = batch(rank, engine.steps, setup.dtype)
            model.loss(x.to(setup.device), y.to(setup.device)).backward()
            time.sleep(setup.jitter * draws.random() * (1.0 if rank else setup.slow))
            engine.step(rate(engine.steps), last=engine.steps + 1 == setup.steps)
        seconds = time.monotonic() - begin
        while not engine.over:
            engine.serve()
        engine.learner.settle()
    leave_together(meeting)
    return Result(
        start,
        on_host(engine.learner.weights, engine, model),
        torch.nn.utils.parameters_to_vector(model.parameters()).detach().cpu().double().numpy(),
        events,
        engine.rounds,
        engine.bytes_sent,
        engine.mixer.exchange.peer_bytes,
        seconds,
    )


def on_host(weights: Tensor, engine: DecentralizedEngine, model: BLSTM) -> np.ndarray:
    """A copy in double precision, in the order of processors: an LSTM on a GPU has another."""
    there = {id(slot.parameter): slot for slot in engine.learner.flat.slots}
    out = np.zeros(weights.numel())
    like = make_model(torch.float64)
    here = {id(slot.parameter): slot for slot in flatten(like).slots}
    for ours, theirs in zip(like.parameters(), model.parameters(), strict=True):
        own = here[id(ours)]
        values = there[id(theirs)].of(weights)
        out[own.start : own.stop] = values.detach().cpu().double().numpy().ravel()
    return out


def run_setup(setup: Setup, seconds: float = 60.0, **env: Any) -> list[Result]:
    """All learners' results."""
    return run(setup.learners, learner, setup, seconds=seconds, env=env)
