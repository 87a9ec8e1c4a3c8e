"""What training leaves: the mean of the learners' weights as final.pt, and summary.json."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hadpsgd.egs.dataset import Dataset
from hadpsgd.files import write_text
from hadpsgd.models.blstm import BLSTM, Shape
from hadpsgd.models.build import ModelMeta, SavedShape, save_model
from hadpsgd.training import averaging
from hadpsgd.training.checkpoints import Saved
from hadpsgd.training.evaluation import evaluate, named
from hadpsgd.training.job import Job
from hadpsgd.training.metrics import say


def consensus(job: Job) -> tuple[Tensor, float]:
    """The mean of all learners' last weights, and their distance from it."""
    job.checkpoints.wait_until_complete(job.meeting.timeout.total_seconds())
    last = job.checkpoints.last
    return average(_Weights(last, sorted(last.parts())))


@dataclass(frozen=True)
class _Weights:
    """Weights of the nodes of a checkpoint, read anew whenever they are gone through."""

    saved: Saved
    nodes: Sequence[int]

    def __iter__(self) -> Iterator[Tensor]:
        return (self.saved.load(node)["weights"] for node in self.nodes)


def average(weights: Iterable[Tensor]) -> tuple[Tensor, float]:
    """Mean of the learners' weights, and sqrt(1/L sum_i |w_i - mean|^2) / |mean|.

    Over the L super-learners that lived, summed in their order, in double precision. Gone through
    twice and never held together: 128 learners take the memory of one.
    """
    mean = averaging.mean(weights)
    squares = [float((row - mean).square().sum()) for row in weights]
    return mean, float(np.sqrt(np.mean(squares)) / mean.norm())


def log_priors(counts: np.ndarray) -> Tensor:
    """Log of each pdf-id's share of the frames; one never seen counts as seen once."""
    shares = np.maximum(counts, 1).astype(np.float64)
    return torch.from_numpy(np.log(shares / shares.sum())).float()


def checksum(model: nn.Module) -> str:
    """SHA-256 of all weights: equal where every bit is."""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def save(out: Path, model: BLSTM, shape: Shape, examples: Dataset) -> None:
    """Write final.pt: weights in single precision, and what their user must know."""
    meta = ModelMeta(
        model_config=SavedShape.of(shape),
        input_dim=examples.dim,
        streams=tuple(examples.streams),
        num_pdfs=examples.num_pdfs,
        log_priors=log_priors(examples.pdf_counts),
    )
    save_model(out / "final.pt", model.float(), meta)


def measure(job: Job) -> dict[str, float]:
    """Load the final weights into the model; the learners' distance from their mean, and the score
    of the final weights on all held-out examples.
    """
    last, distance = consensus(job)
    score = _score(job, last)
    found = {"consensus_distance": distance, **score}
    if versions := averaging.by_epoch(job.checkpoints.last.epochs()):
        found |= _choose(job, last, score, versions)
    return found


def _score(job: Job, weights: Tensor) -> dict[str, float]:
    """On all held-out examples, of weights that the model has from now on."""
    job.engine.load_weights(weights)
    return named(evaluate(job.model, job.dev_feed.share(rank=0, learners=1)))


def _choose(
    job: Job, last: Tensor, score: dict[str, float], versions: dict[int, dict[int, int]]
) -> dict[str, float]:
    """Load the mean over the ends of epochs, or the last one's again if that scores better.

    `versions`: what was kept, as that of `Choice`. The score of what is loaded, and of the other.
    """
    folder, moment = job.checkpoints.folder, job.checkpoints.last.folder.name
    choice = averaging.Choice(
        moment=moment, averaged=False, last=score["heldout_loss"], mean=math.nan, versions=versions
    )
    epochs = choice.of_epochs(lambda kept: averaging.load(kept.file(folder)))
    mean = averaging.mean(chain(epochs, [last]))
    score_of_mean = _score(job, mean)
    loss = score_of_mean["heldout_loss"]
    choice = replace(choice, mean=loss, averaged=loss <= choice.last)
    choice.write(folder)
    say(
        f"{job.run.id}: held-out loss {loss:.4f} of the mean of epochs "
        f"{min(versions)} to {job.settings.training.epochs}, {choice.last:.4f} of the last one: "
        f"the {'mean' if choice.averaged else 'last one'} is final"
    )
    if not choice.averaged:
        job.engine.load_weights(last)
    return {
        **(score_of_mean if choice.averaged else score),
        "averaged_epochs": len(versions) + 1 if choice.averaged else 1,
        "heldout_loss_of_last": choice.last,
        "heldout_loss_of_mean": loss,
    }


def write(job: Job, seconds: float, measured: dict[str, float]) -> None:
    """Write final.pt and summary.json (the leader)."""
    summary: dict[str, Any] = {
        "run": job.run.id,
        "identity": job.identity,
        "strategy": job.run.strategy,
        "learners": job.run.learners,
        "super_learner": job.run.super_learner,
        "schedule": job.run.schedule,
        "epochs": job.settings.training.epochs,
        "steps": job.total,
        "mixes": job.engine.rounds,
        "mixes_per_step": job.engine.rounds / max(1, job.total),
        "device": job.device.type,
        "threads": torch.get_num_threads(),
        "arithmetic": job.gradients.arithmetic,
        "parameters": sum(p.numel() for p in job.model.parameters()),
        "seconds": seconds,
        "weights": checksum(job.model.float()),
        **measured,
    }
    save(job.out, job.model, job.settings.model, job.train)
    write_text(job.out / "summary.json", json.dumps(summary, indent=2) + "\n")
