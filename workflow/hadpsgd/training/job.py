"""A training run put together from its config: model, examples, engine, checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from hadpsgd.config import Config, RunSettings, settings_of
from hadpsgd.config.training import Run
from hadpsgd.decentralized.core.engine import Engine
from hadpsgd.decentralized.core.place import share_of_cores
from hadpsgd.decentralized.network import rendezvous
from hadpsgd.decentralized.network.injectors import Injection
from hadpsgd.decentralized.network.rendezvous import Meeting
from hadpsgd.egs.dataset import Dataset
from hadpsgd.egs.masking import Masks
from hadpsgd.errors import UserError
from hadpsgd.models.backend import allow_tf32
from hadpsgd.models.blstm import BLSTM
from hadpsgd.training import arithmetic
from hadpsgd.training.averaging import Kept
from hadpsgd.training.checkpoints import Checkpoints
from hadpsgd.training.criterion import Criterion, begin, criterion_of
from hadpsgd.training.data import Feed, plan_of
from hadpsgd.training.engines import engine_of, injection_of, virtual_learners_of
from hadpsgd.training.evaluation import pick_device
from hadpsgd.training.gradients import Gradients
from hadpsgd.training.identity import checkpoint_folder, identity
from hadpsgd.training.virtual_learners import Minibatches, VirtualLearners


@dataclass
class Job:
    """Everything that the training loop works with."""

    settings: RunSettings
    out: Path
    identity: str
    """Hash of all that decides the weights: settings and examples."""
    meeting: Meeting
    model: BLSTM
    criterion: Criterion
    engine: Engine
    train: Dataset
    dev: Dataset
    feed: Feed
    dev_feed: Feed
    checkpoints: Checkpoints
    kept: Kept
    """This learner's weights at the ends of epochs."""
    steps_per_epoch: int
    device: torch.device
    gradients: Gradients
    injection: Injection
    every_seconds: float
    """Between points of the curves."""
    virtual: VirtualLearners | None = None
    """All learners, where they are of this one process; `engine` is then the first one's."""
    moved: Callable[[int], object] = lambda _: None
    """Told the rank whose place this process takes."""
    enough: bool = False
    """Whether training ended early, of what held-out losses said."""

    @property
    def run(self) -> Run:
        """How its learners work together."""
        return self.settings.run

    @property
    def total(self) -> int:
        """Steps of the run: updates of each learner, or of one in the mean if they share work."""
        return self.settings.training.epochs * self.steps_per_epoch


def assemble(
    config: Config, run_id: str, *, egs: Path, dev_egs: Path, out: Path, initial: Path | None = None
) -> Job:
    """Meet the other ranks and build everything.

    `initial`: final.pt of the run that a stage goes on from.

    Raises:
        UserError: examples, processes or settings do not fit together.
    """
    settings = settings_of(config, run_id)
    run, training, seed = settings.run, settings.training, settings.seed
    hash_ = identity(config, run_id, egs, initial=initial)
    train, dev = (Dataset(folder, readers=training.readers) for folder in (egs, dev_egs))
    _check_alike(train, dev)
    meeting = rendezvous.meet(
        learners=run.processes,
        size=1 if run.simulated else run.shared_gradients,
        agree_on=hash_,
        seconds=config.site.rendezvous_seconds,
    )
    place = meeting.place
    if config.egs.verify:
        for examples in (train, dev):
            examples.verify(rank=place.rank, learners=place.world)
    torch.set_num_threads(training.threads or share_of_cores(meeting.local_world))
    device = pick_device(training.device, place.rank % meeting.local_world)
    if device.type == "cuda":
        torch.cuda.set_device(device)  # streams, events and NCCL go by the current one
    dtype = torch.float64 if training.precision == "fp64" else torch.float32
    allow_tf32(training.precision == "tf32")
    torch.manual_seed(seed)
    model = BLSTM.for_training(
        settings.model, input_dim=train.dim, num_pdfs=train.num_pdfs, seed=seed
    )
    begin(model, initial, train)
    model = model.to(device, dtype)
    plan = plan_of(settings, train)
    checkpoints = Checkpoints(
        checkpoint_folder(config, run_id=run_id, hash_=hash_), meeting, training.keep_checkpoints
    )
    captured = arithmetic.can_capture(settings, device)
    way = arithmetic.agree(
        training.precision,
        model,
        arithmetic.Size(subsequences=max(1, training.batch // run.learners), frames=train.frames),
        run_id=run.id,
        meeting=meeting,
        folder=checkpoints.folder,
        captured=captured,
    )
    by_host = device.type == "cuda" and config.site.between_gpus == "host"

    feed = partial(
        Feed, plan=plan, rank=place.rank, learners=run.learners, device=device, dtype=dtype
    )
    train_feed = feed(train, masks=Masks.of(training, seed, train))

    module = criterion_of(model, settings, train)
    virtual: VirtualLearners | None = None
    engine: Engine
    if run.simulated:
        minibatches = Minibatches(Gradients(module, settings, device, arithmetic=way), train_feed)
        virtual = virtual_learners_of(
            settings, minibatches, plan.steps, checkpoints.folder, train_feed
        )
        engine = virtual.simulation().nodes[0].engine
    else:
        engine = engine_of(
            settings, module, meeting, plan.steps, checkpoints.folder, by_host=by_host
        )
    return Job(
        settings=settings,
        out=out,
        identity=hash_,
        meeting=meeting,
        model=model,
        criterion=module,
        engine=engine,
        train=train,
        dev=dev,
        feed=train_feed,
        dev_feed=feed(dev),
        checkpoints=checkpoints,
        kept=Kept(checkpoints.folder, place.node, training, writes=place.member == 0),
        steps_per_epoch=plan.steps,
        device=device,
        gradients=Gradients(engine.module, settings, device, arithmetic=way, captured=captured),
        injection=injection_of(run, seed),
        every_seconds=config.tracking.every_seconds,
        virtual=virtual,
    )


def _check_alike(train: Dataset, dev: Dataset) -> None:
    for what in ("frames", "dim", "num_pdfs", "streams"):
        ours, theirs = getattr(train, what), getattr(dev, what)
        if ours != theirs:
            raise UserError(
                f"{what} {theirs}, but the training examples have {ours}",
                where=dev.folder,
                fix="Make both with the same features and alignments, and the same --stage",
            )
