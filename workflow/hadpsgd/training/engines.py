"""The engine of a run of the config: its strategy, optimiser, injected trouble and records."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hadpsgd.config import RunSettings
from hadpsgd.config.settings import Settings
from hadpsgd.config.training import Run
from hadpsgd.decentralized import assembly
from hadpsgd.decentralized.core.buffers import flatten
from hadpsgd.decentralized.core.engine import Engine
from hadpsgd.decentralized.core.sgd import Sgd
from hadpsgd.decentralized.network.injectors import Injection
from hadpsgd.decentralized.network.rendezvous import Meeting
from hadpsgd.decentralized.network.speeds import ComputeTimes, LinkTimes
from hadpsgd.decentralized.record.lives import Lives, first_file
from hadpsgd.decentralized.record.record import Recorder
from hadpsgd.decentralized.simulated.simulation import Setting
from hadpsgd.decentralized.strategies import registry
from hadpsgd.decentralized.strategies.ddp import DdpEngine
from hadpsgd.decentralized.strategies.registry import Choice, Strategy
from hadpsgd.decentralized.strategies.strategy import check
from hadpsgd.decentralized.topology.mixing import MixingSchedule
from hadpsgd.training.checkpoints import record_before
from hadpsgd.training.data import Feed
from hadpsgd.training.probe import Probe
from hadpsgd.training.rate import rate
from hadpsgd.training.virtual_learners import Minibatches, VirtualLearners


def strategy_of(run: Run, steps_per_epoch: int) -> Strategy:
    """The engine's strategy for a run of the config."""
    return registry.create(
        Choice(
            strategy=run.strategy,
            among=run.among,
            pace=run.pace,
            max_staleness=run.max_staleness,
            every=run.average_every,
            synchronous_steps=round(run.synchronous_epochs * steps_per_epoch),
            outer_rate=run.outer_rate,
            outer_momentum=run.outer_momentum,
            wire=run.wire,
        )
    )


def sgd_of(settings: Settings) -> Sgd:
    """The optimiser's settings."""
    return Sgd(
        momentum=settings.momentum,
        nesterov=settings.nesterov,
        weight_decay=settings.weight_decay,
        clip_norm=settings.clip_norm,
    )


def injection_of(run: Run, seed: int) -> Injection:
    """The trouble that the config wants."""
    wanted = run.injected
    return Injection(
        compute=ComputeTimes(
            seconds=1.0,
            factors=wanted.slow_learners,
            spread=wanted.spread,
            deviation=wanted.deviation,
            seed=seed,
        ),
        links=LinkTimes(
            latency=wanted.link_ms / 1000,
            bandwidth=wanted.link_mbit * 1e6 / 8 if wanted.link_mbit else math.inf,
            factors=wanted.slow_links,
        ),
        drop=wanted.drop,
        seed=seed,
    )


def record_folder(folder: Path) -> Path:
    """Where the (super-)learners' records lie in the folder of the checkpoints."""
    return folder / "record"


def engine_of(
    settings: RunSettings,
    module: nn.Module,
    meeting: Meeting,
    steps_per_epoch: int,
    folder: Path,
    *,
    by_host: bool,
) -> Engine:
    """The engine of this rank; see `assembly.build`."""
    run, seed, sgd = settings.run, settings.seed, sgd_of(settings.training)
    skip = settings.training.not_finite == "skip"
    if run.strategy == "ddp":
        return DdpEngine(module, sgd, meeting, skip_not_finite=skip, by_host=by_host)
    header, node = _header(settings, meeting.place.nodes), meeting.place.node
    records = record_folder(folder)
    lives = None
    if meeting.store is not None:
        before = partial(record_before, folder, meeting)
        lives = Lives(meeting.prefixed("record"), records, before)

    def recorder(schedule: MixingSchedule) -> Recorder:
        return Recorder(records / first_file(node), header, schedule, node, lives=lives)

    return assembly.build(
        module,
        sgd,
        strategy_of(run, steps_per_epoch),
        run.schedule,
        meeting,
        seed=seed,
        recorder=recorder,
        injection=injection_of(run, seed),
        skip_not_finite=skip,
        by_host=by_host,
        reduces=settings.training.member_death != "leave",
    )


def virtual_learners_of(
    settings: RunSettings, minibatches: Minibatches, steps_per_epoch: int, folder: Path, feed: Feed
) -> VirtualLearners:
    """All learners of a run in virtual time: its times are what would be put into a real one."""
    run, seed, times = settings.run, settings.seed, settings.run.virtual
    strategy, injection = strategy_of(run, steps_per_epoch), injection_of(run, seed)
    size = run.super_learner
    nodes = run.learners // size
    schedule = assembly.schedule_of(
        strategy, run.schedule, nodes=nodes, seed=seed, injection=injection
    )
    check(strategy, schedule, learners=run.learners, size=size)
    header, training = _header(settings, nodes), settings.training
    setting = Setting(
        strategy=strategy,
        schedule=schedule,
        compute=replace(injection.compute, seconds=times.compute_seconds),
        links=injection.links,
        size=size,
        inside_seconds=times.inside_seconds,
        sgd=sgd_of(training),
        rate=lambda step: rate(
            training.learning_rate, batch=training.batch, epoch=step / steps_per_epoch
        ),
        shared_steps=0 if strategy.synchronous else training.epochs * steps_per_epoch,
        model_bytes=times.model_mib * 2**20 or None,
    )
    flat = flatten(minibatches.module, shards=run.learners)
    probe = Probe(minibatches.module, flat, feed, nodes=nodes, batch=training.batch, seed=seed)
    return VirtualLearners(
        setting,
        minibatches,
        flat,
        lambda n: Recorder(record_folder(folder) / first_file(n), header, schedule, n),
        skip_not_finite=training.not_finite == "skip",
        probe=probe if run.probe else None,
    )


def _header(settings: RunSettings, nodes: int) -> dict[str, Any]:
    """What a record says of its run."""
    return {
        "run": settings.run.id,
        "nodes": nodes,
        "schedule": settings.run.schedule,
        "wire": settings.run.wire,
        "seed": settings.seed,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }
