"""Decentralised training of any module with any torch.optim optimiser: the library's front door.

    trainer = decentralize(model, optimizer, strategy="hadpsgd", super_learner=8)
    for x, y in trainer.share(loader):
        loss(model(x), y).backward()
        trainer.step()
    trainer.finish()                        # every rank: the mean of the learners' weights

Each process runs the same script, started by torchrun or srun. It is the engine of `assembly`;
nothing is computed here.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

from hadpsgd.decentralized import assembly, options
from hadpsgd.decentralized.agreement import check_alike, hash_of, size_of
from hadpsgd.decentralized.core.optimiser import TorchOptimiser
from hadpsgd.decentralized.core.supported import check_module
from hadpsgd.decentralized.network import rendezvous
from hadpsgd.decentralized.network.rounding import ROUNDINGS
from hadpsgd.decentralized.strategies.registry import Choice, create, find
from hadpsgd.decentralized.strategies.strategy import UNROUNDED
from hadpsgd.decentralized.trainer import Trainer
from hadpsgd.errors import UserError

OFFERED = (
    *("adpsgd", "rand", "d1d", "dpsgd", "ssgd", "local", "diloco", "noloco", "sgp"),
    "hadpsgd",
)
"""Strategies that are held against torch with its optimisers."""


def decentralize(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    strategy: str = "adpsgd",
    super_learner: int | None = None,
    among: str | None = None,
    schedule: str | None = None,
    average_every: int | None = None,
    outer_rate: float | None = None,
    outer_momentum: float | None = None,
    pace: int | None = None,
    max_staleness: int | None = None,
    wire: str = UNROUNDED,
    clip_norm: float = 0.0,
    backwards: int = 1,
    seed: int = 0,
    seconds: float = 300.0,
    agree_on: str = "",
    between_gpus: str = "nccl",
) -> Trainer:
    """Meet the other processes and take the model's weights over.

    Args:
        model: on its device, with the same weights on every rank (seed torch before you make it).
        optimizer: of its parameters, with any groups; its state stays with the learner.
        strategy: one of `OFFERED`. One process is always alone.
        super_learner: learners of a super-learner, for hadpsgd, which needs it.
        among: the strategy among super-learners, for hadpsgd (adpsgd).
        schedule: who mixes with whom; the strategy's own where None.
        average_every: steps between rounds, for local, diloco and noloco (8).
        outer_rate, outer_momentum: of the outer steps, for diloco and noloco (0.7; 0.9 for diloco,
            0.5 for noloco).
        pace: rounds of mixing for each gradient, for asynchronous strategies (1).
        max_staleness: versions that a gradient may miss, for asynchronous strategies (64).
        wire: float32, or bfloat16 or int8: weights are rounded on their way, for asynchronous
            strategies.
        clip_norm: limit to the gradient's norm (of a super-learner's mean; 0: none).
        backwards: backward passes that a step's gradient is made of.
        seed: of random schedules and of the order of shares.
        seconds: how long to wait for the other processes.
        agree_on: whatever else must be the same on all ranks (a script's own settings).
        between_gpus: nccl, or host: by the hosts' memory and gloo, which learners of one GPU need.

    Raises:
        UserError: what cannot work; or a process did not come or runs something else.
    """
    check_module(model)
    for wanted in (strategy, among or strategy):
        if wanted not in OFFERED:
            raise UserError(f"no strategy '{wanted}' here", fix=f"There are: {', '.join(OFFERED)}")
    of_some = {
        "super_learner": super_learner,
        "among": among,
        "average_every": average_every,
        "outer_rate": outer_rate,
        "outer_momentum": outer_momentum,
        "pace": pace,
        "max_staleness": max_staleness,
    }
    options.check_bounds({**of_some, "backwards": backwards, "clip_norm": clip_norm})
    chosen = options.taken(strategy, of_some)
    _, world = started()
    if wire not in ROUNDINGS:
        raise UserError(f"no wire '{wire}'", fix=f"There are: {', '.join(ROUNDINGS)}")
    if between_gpus not in ("nccl", "host"):
        raise UserError(f"between_gpus is nccl or host, not '{between_gpus}'")
    by_host = between_gpus == "host" and next(model.parameters()).is_cuda
    name = strategy if world > 1 else "single"
    kind = find(name, among=chosen["among"])
    size = size_of(name, world=world, super_learner=chosen["super_learner"])
    schedule = schedule or kind.default_schedule
    if world > 1:
        check_former()
        _check_group()
    settings = (name, size, schedule, backwards, seed, between_gpus, clip_norm, wire, agree_on)
    agreed = hash_of(repr((*settings, sorted(chosen.items(), key=str))))
    before, _made.before = _made.before, _made.before + 1
    meeting = rendezvous.meet(
        learners=world, size=size, agree_on=agreed, seconds=seconds, before=before
    )
    if meeting.joining:
        raise UserError(
            "a process that failed cannot be replaced here", fix="Start all of them anew"
        )
    check_alike(model, meeting)
    choice = Choice(
        strategy=name,
        among=chosen["among"],
        pace=chosen["pace"],
        max_staleness=chosen["max_staleness"],
        every=chosen["average_every"],
        outer_rate=chosen["outer_rate"],
        outer_momentum=chosen["outer_momentum"],
        wire=wire if world > 1 else UNROUNDED,
    )
    try:
        engine = assembly.build(
            model,
            TorchOptimiser(optimizer, clip_norm=clip_norm),
            create(choice),
            schedule,
            meeting,
            seed=seed,
            backwards=backwards,
            by_host=by_host,
        )
    except ValueError as error:
        raise UserError(str(error)) from None
    trainer = Trainer(engine, meeting, seed=seed, by_host=by_host)
    _made.last = weakref.ref(trainer)
    return trainer


@dataclass
class _Made:
    before: int = 0
    """Calls of `decentralize` that have met other processes, or tried to."""
    last: Callable[[], Trainer | None] = lambda: None
    """The last trainer, if it is in use."""


_made = _Made()
"""By this process."""


def _forget() -> None:
    """Trainers of the process that this one was forked from are not its own."""
    _made.before, _made.last = 0, lambda: None


os.register_at_fork(after_in_child=_forget)


def check_former() -> None:
    """One trainer after another: both would take torch's one default group.

    Raises:
        UserError: the last one has not finished.
    """
    former = _made.last()
    if former is not None and not former.finished:
        raise UserError(
            "a trainer of this process has not finished, and learners have one at a time",
            fix="Call its finish() before, or make one module and one optimizer of both models",
        )


def _check_group() -> None:
    """The engine makes torch's default group itself, and destroys it at the end.

    Raises:
        UserError: there is one.
    """
    if dist.is_initialized():
        raise UserError(
            "torch.distributed has a default process group, and the trainer makes its own",
            fix="Leave init_process_group() out: trainer.mean() takes the mean of measurements",
        )


def started() -> tuple[int, int]:
    """Rank of this process and number of learners, as it was started; nobody is met yet."""
    env = rendezvous.environment()
    return int(env["RANK"]), int(env["WORLD_SIZE"])
