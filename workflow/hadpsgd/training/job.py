"""A training run put together from its config: model, examples, engine, checkpoints."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from hadpsgd.config import Config, fingerprint, run_fingerprint, run_of
from hadpsgd.config.training import Run
from hadpsgd.decentralized import assembly, rendezvous, strategies
from hadpsgd.decentralized.ddp import DdpEngine
from hadpsgd.decentralized.engine import Engine
from hadpsgd.decentralized.injectors import Injection
from hadpsgd.decentralized.mixing import MixingSchedule
from hadpsgd.decentralized.record import Recorder
from hadpsgd.decentralized.rendezvous import Meeting
from hadpsgd.decentralized.sgd import Sgd
from hadpsgd.decentralized.speeds import ComputeTimes, LinkTimes
from hadpsgd.egs.dataset import Dataset, Plan
from hadpsgd.errors import UserError
from hadpsgd.files import sha256
from hadpsgd.models.blstm import BLSTM
from hadpsgd.training.checkpoints import Checkpoints
from hadpsgd.training.data import Feed
from hadpsgd.training.evaluation import pick_device
from hadpsgd.training.gradients import Gradients


class LossOf(nn.Module):
    """The loss as a module's output: what an engine may wrap."""

    def __init__(self, model: BLSTM) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy of a batch."""
        return self.model.loss(x, targets)


@dataclass
class Job:
    """Everything that the training loop works with."""

    config: Config
    run: Run
    out: Path
    identity: str
    """Hash of all that decides the weights: settings and examples."""
    meeting: Meeting
    model: BLSTM
    engine: Engine
    train: Dataset
    dev: Dataset
    feed: Feed
    dev_feed: Feed
    checkpoints: Checkpoints
    steps_per_epoch: int
    device: torch.device
    gradients: Gradients
    injection: Injection

    @property
    def total(self) -> int:
        """Updates of each learner."""
        return self.config.training.epochs * self.steps_per_epoch


def identity(config: Config, run_id: str, egs: Path) -> str:
    """Hash of what decides the weights."""
    meta = egs / "meta.json"
    if not meta.is_file():
        raise UserError("no examples here", where=egs, fix="`hadpsgd egs` makes them")
    return fingerprint([run_fingerprint(config, run_id), sha256(meta)])


def checkpoint_folder(config: Config, *, run_id: str, hash_: str) -> Path:
    """Where the checkpoints of a run lie, apart from the outputs of its rule."""
    return Path(config.results) / "checkpoints" / config.name / f"{run_id}-{hash_}"


def strategy_of(run: Run, steps_per_epoch: int) -> strategies.Strategy:
    """The engine's strategy for a run of the config."""
    names = {"hadpsgd": run.among, "rand": "adpsgd", "single": "ssgd"}
    return strategies.create(
        strategies.Choice(
            strategy=names.get(run.strategy, run.strategy),
            pace=run.pace,
            max_staleness=run.max_staleness,
            every=run.average_every,
            synchronous_steps=round(run.synchronous_epochs * steps_per_epoch),
        )
    )


def share_of_cores(processes: int) -> int:
    """Threads of one of so many processes on this host: more than cores would be far slower."""
    return max(1, len(os.sched_getaffinity(0)) // processes)


def assemble(config: Config, run_id: str, *, egs: Path, dev_egs: Path, out: Path) -> Job:
    """Meet the other ranks and build everything.

    Raises:
        UserError: examples, processes or settings do not fit together.
    """
    run, settings = run_of(config, run_id), config.training
    hash_ = identity(config, run_id, egs)
    train, dev = Dataset(egs), Dataset(dev_egs)
    _check_alike(train, dev)
    meeting = rendezvous.meet(
        run.learners, run.shared_gradients, hash_, settings.rendezvous_seconds
    )
    place = meeting.place
    torch.set_num_threads(settings.threads or share_of_cores(meeting.local_world))
    device = pick_device(settings.device, place.rank % meeting.local_world)
    if device.type == "cuda":
        torch.cuda.set_device(device)  # streams, events and NCCL go by the current one
    dtype = torch.float64 if settings.precision == "fp64" else torch.float32
    torch.backends.cuda.matmul.allow_tf32 = settings.precision == "tf32"
    torch.backends.cudnn.allow_tf32 = settings.precision == "tf32"
    torch.manual_seed(config.seed)
    model = BLSTM(config.model, input_dim=train.dim, num_pdfs=train.num_pdfs, seed=config.seed).to(
        device, dtype
    )
    plan = Plan(size=len(train), batch=settings.batch, seed=config.seed)
    checkpoints = Checkpoints(
        checkpoint_folder(config, run_id=run_id, hash_=hash_), meeting, settings.keep_checkpoints
    )
    engine = _engine(config, run, LossOf(model), meeting, plan.steps, checkpoints.folder)

    def feed(data: Dataset) -> Feed:
        return Feed(data, plan, rank=place.rank, learners=place.world, device=device, dtype=dtype)

    return Job(
        config=config,
        run=run,
        out=out,
        identity=hash_,
        meeting=meeting,
        model=model,
        engine=engine,
        train=train,
        dev=dev,
        feed=feed(train),
        dev_feed=feed(dev),
        checkpoints=checkpoints,
        steps_per_epoch=plan.steps,
        device=device,
        gradients=Gradients(engine.module, config, device),
        injection=injection_of(run, config.seed),
    )


def sgd_of(config: Config) -> Sgd:
    """The optimiser's settings."""
    settings = config.training
    return Sgd(settings.momentum, settings.nesterov, settings.weight_decay, settings.clip_norm)


def injection_of(run: Run, seed: int) -> Injection:
    """The trouble that the config wants."""
    wanted = run.injected
    return Injection(
        compute=ComputeTimes(1.0, wanted.slow_learners, wanted.spread, wanted.deviation, seed),
        links=LinkTimes(
            wanted.link_ms / 1000,
            wanted.link_mbit * 1e6 / 8 if wanted.link_mbit else math.inf,
            wanted.slow_links,
        ),
        drop=wanted.drop,
        seed=seed,
    )


def record_file(folder: Path, node: int) -> Path:
    """Where a (super-)learner's record lies in the folder of the checkpoints."""
    return folder / "record" / f"node-{node}.bin"


def _engine(
    config: Config,
    run: Run,
    module: nn.Module,
    meeting: Meeting,
    steps_per_epoch: int,
    folder: Path,
) -> Engine:
    skip = config.training.not_finite == "skip"
    on_gpu = next(module.parameters()).is_cuda
    by_host = on_gpu and config.training.cluster.between_gpus == "host"
    if run.strategy == "ddp":
        return DdpEngine(module, sgd_of(config), meeting, skip_not_finite=skip, by_host=by_host)
    header = {
        "run": run.id,
        "nodes": meeting.place.nodes,
        "schedule": run.schedule,
        "seed": config.seed,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }
    node = meeting.place.node

    def recorder(schedule: MixingSchedule) -> Recorder:
        return Recorder(record_file(folder, node), header, schedule, node)

    return assembly.build(
        module,
        sgd_of(config),
        strategy_of(run, steps_per_epoch),
        run.schedule,
        meeting,
        seed=config.seed,
        recorder=recorder,
        injection=injection_of(run, config.seed),
        skip_not_finite=skip,
        by_host=by_host,
    )


def _check_alike(train: Dataset, dev: Dataset) -> None:
    for what in ("dim", "num_pdfs", "streams"):
        ours, theirs = getattr(train, what), getattr(dev, what)
        if ours != theirs:
            raise UserError(
                f"{what} {theirs}, but the training examples have {ours}",
                where=dev.folder,
                fix="Make both with the same features and alignments",
            )
