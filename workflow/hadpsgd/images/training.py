"""The training: one page, from image folders to final.pt, by `decentralize` alone."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from contextlib import closing, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hadpsgd.decentralized.offered import decentralize, started
from hadpsgd.decentralized.pool import Pool
from hadpsgd.decentralized.trainer import Trainer
from hadpsgd.errors import UserError
from hadpsgd.files import atomic_file, write_text
from hadpsgd.images import network
from hadpsgd.images.folders import Folders
from hadpsgd.images.metrics import Rows, Score, criterion, evaluate
from hadpsgd.images.recipe import Recipe
from hadpsgd.rank_checkpoints import Checkpoints
from hadpsgd.rank_device import device_of
from hadpsgd.run_folder import alone

OF_NO_RESULT = ("data", "out", "workers", "device", "between_gpus", "save_every")
"""Settings with which the result is the same."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What `hadpsgd images` is asked for."""

    data: Path
    out: Path
    model: str = "resnet50"
    recipe: Recipe = field(default_factory=Recipe)
    size: int = 224
    """Pixels of an image's side."""
    engine: dict[str, Any] = field(default_factory=dict)
    """Arguments of `decentralize`."""
    seed: int = 0
    bf16: bool = False
    """Forward and backward under autocast."""
    statistics_batches: int = 200
    """Batches on which the final network's BatchNorm is estimated (0: the learners' mean)."""
    save_every: int = 0
    """Steps between checkpoints (0: an epoch's)."""
    workers: int = 4
    """Processes of a learner that load images, at most as many as cores."""
    device: str = "auto"
    between_gpus: str = "nccl"
    """nccl or host, see `decentralize`."""

    def __post_init__(self) -> None:
        """UserError for what cannot be meant."""
        if self.size < 1:
            raise UserError("size must be 1 at least")
        if min(self.seed, self.statistics_batches, self.save_every, self.workers) < 0:
            raise UserError("seed, statistics-batches, save-every and workers must be 0 at least")

    def identity(self, *, learners: int, pictures: int) -> str:
        """Hash of all that decides the result."""
        made = {k: v for k, v in asdict(self).items() if k not in OF_NO_RESULT}
        text = json.dumps({**made, "learners": learners, "pictures": pictures}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def train(settings: Settings) -> None:
    """Train to the end, from the last checkpoint if there is one; rank 0 writes the result.

    Raises:
        UserError: no such pictures, network or strategy; too few pictures; another training works
            in the folder.
    """
    rank, learners = started()
    with alone(settings.out) if rank == 0 else nullcontext():
        _train(settings, rank=rank, learners=learners)


def _train(settings: Settings, *, rank: int, learners: int) -> None:
    device, recipe = device_of(settings.device), settings.recipe
    folders = Folders.open(settings.data, size=settings.size)
    hash_ = settings.identity(learners=learners, pictures=len(folders.train))
    if _identity_of(settings.out) == hash_:
        return _say(f"{settings.out / 'final.pt'} is there, of the same settings: nothing to do")

    torch.manual_seed(settings.seed)  # the same first weights on every rank
    net = network.make(settings.model, classes=len(folders.train.classes)).to(device)
    optimizer = recipe.optimizer(net)
    trainer = decentralize(
        net,
        optimizer,
        seed=settings.seed,
        agree_on=hash_,
        between_gpus=settings.between_gpus,
        **settings.engine,
    )
    files = Checkpoints(settings.out / "checkpoints" / hash_, trainer.meeting)
    share = trainer.share(folders.batches(batch=recipe.batch, workers=settings.workers))
    if not len(share):
        raise UserError(
            f"{len(folders.train)} pictures are less than a batch of {recipe.batch} for each of "
            f"{learners} learners",
            where=settings.data,
        )
    if settings.save_every and isinstance(share, Pool):
        raise UserError(
            "learners that share their work make other numbers of steps",
            fix="Leave --save-every out: checkpoints are written at the ends of epochs",
        )
    score, number = Score(), 0
    if found := files.newest():
        number, state = found
        trainer.load_state_dict(state["trainer"])
        score = Score(**state["score"])
        _say(f"rank {rank} goes on from epoch {share.progress:.2f}, checkpoint {number}")
    # not before: a process of a former start has ended by now, as the others do not answer it
    rows = Rows(settings.out / "metrics" / f"rank-{rank}.jsonl", epochs=share.epoch)

    def save() -> None:
        # counted, as learners that share their work make other numbers of steps
        nonlocal number
        number += 1
        files.save(number, {"trainer": trainer.state_dict(), "score": score.state()})

    every, rate = settings.save_every, recipe.rate(share.progress, learners=learners)
    with closing(rows), trainer:  # at its end, all weights are averaged
        while share.epoch < recipe.epochs:
            epoch, begin, stale, waited = share.epoch, time.monotonic(), [0], 0.0
            for images, labels in share:
                images, labels = images.to(device), labels.to(device)
                rate = recipe.rate(share.progress, learners=learners)
                for group in optimizer.param_groups:
                    group["lr"] = rate
                with torch.autocast(device.type, torch.bfloat16, enabled=settings.bf16):
                    output = net(images)
                    loss = criterion(output, labels)
                loss.backward()
                score.add(output, labels, float(loss.detach()))
                report = trainer.step()
                stale.append(report.staleness)
                waited += report.exposed
                if trainer.stopped:
                    break
                if every and trainer.steps % every == 0:
                    save()
            if share.epoch == epoch:  # all have stopped in it
                save()
                break
            seconds = time.monotonic() - begin
            row = {
                "epoch": share.epoch,
                "step": trainer.steps,
                "images": score.images,
                "rate": rate,
                **score.means(),
                "distance": trainer.distance(),
                "staleness": sum(stale) / max(len(stale) - 1, 1),
                "seconds": seconds,
                "waited": waited,
            }
            score = Score()
            rows.add(row | _held_out(net, folders, trainer, settings, device))
            _tell(rows.rows[-1], trainer)
            if not every or share.epoch == recipe.epochs or trainer.stopped:
                save()
    if share.epoch < recipe.epochs:
        return _say(f"rank {rank} has stopped in epoch {share.epoch + 1}: the same command goes on")
    if rank == 0:
        _finish(settings, net, folders, device, hash_, learners)
        files.clear()
        with suppress(OSError):  # those of other settings are beside them
            (settings.out / "checkpoints").rmdir()
    return None


def _held_out(
    net: nn.Module, folders: Folders, trainer: Trainer, settings: Settings, device: torch.device
) -> dict[str, float | None]:
    """This learner's own weights, on its part of the held-out pictures."""
    batches = folders.held_out_batches(
        batch=settings.recipe.batch,
        workers=settings.workers,
        rank=trainer.rank,
        learners=trainer.learners,
    )
    found = evaluate(net, batches, device)
    return {f"heldout_{name}": value for name, value in found.means().items()} | {
        "heldout_images": found.images
    }


def _finish(
    settings: Settings,
    net: nn.Module,
    folders: Folders,
    device: torch.device,
    hash_: str,
    learners: int,
) -> None:
    """Rank 0, with the mean of all learners' weights."""
    batch, workers = settings.recipe.batch, settings.workers
    if settings.statistics_batches:
        seed = settings.seed + settings.recipe.epochs  # as if there were one more epoch
        some = folders.some(settings.statistics_batches, batch=batch, seed=seed, workers=workers)
        network.estimate_statistics(net, some, device)
    score = evaluate(net, folders.held_out_batches(batch=batch, workers=workers), device)
    weights = {name: value.cpu().clone() for name, value in net.state_dict().items()}
    (settings.out / "summary.json").unlink(missing_ok=True)  # of another one, if killed now
    with atomic_file(settings.out / "final.pt") as temporary, temporary.open("wb") as stream:
        # not to a path, whose name would be in it
        torch.save({"model": weights, "classes": folders.train.classes}, stream)
    summary = {
        "model": settings.model,
        "learners": learners,
        **settings.engine,
        **{f"heldout_{name}": value for name, value in score.means().items()},
        "heldout_images": score.images,
        "epochs": settings.recipe.epochs,
        "identity": hash_,
    }
    write_text(settings.out / "summary.json", json.dumps(summary, indent=2) + "\n")
    _say(f"{settings.out / 'final.pt'}: top-1 {_percent(score.means()['top1'])}")


def _identity_of(out: Path) -> str | None:
    """Of the settings that the result in a folder was made with; None where it is not whole."""
    try:
        found: str = json.loads((out / "summary.json").read_text(encoding="utf-8"))["identity"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if (out / "final.pt").is_file() else None


def _tell(row: dict[str, Any], trainer: Trainer) -> None:
    if trainer.rank == 0:
        _say(
            f"epoch {row['epoch']}: rate {row['rate']:.4f}, {_learned(row)}, "
            f"held out {_percent(row['heldout_top1'])}, {row['seconds']:.0f} s"
        )


def _learned(row: dict[str, Any]) -> str:
    """The others may have taken all batches of an epoch."""
    if not row["images"]:
        return "no batch for this learner"
    return f"loss {row['loss']:.3f}, top-1 {_percent(row['top1'])}"


def _percent(share: float | None) -> str:
    return "of no picture" if share is None else f"{100 * share:.2f} %"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
