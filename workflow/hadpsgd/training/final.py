"""What training leaves: the mean of the learners' weights as final.pt, and summary.json."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hadpsgd.egs.dataset import Dataset
from hadpsgd.files import write_text
from hadpsgd.models.blstm import BLSTM, Shape
from hadpsgd.models.build import ModelMeta, SavedShape, checksum, log_priors, save_model
from hadpsgd.training import averaging
from hadpsgd.training.choosing import choose
from hadpsgd.training.job import Job
from hadpsgd.training.row_file import rows_of
from hadpsgd.training.saved import Saved


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
    """Load the final weights into the model; the learners' distance from their mean at the end, and
    the score of the final weights on all held-out examples.
    """
    last, distance = consensus(job)
    return {"consensus_distance": distance, **choose(job, last)}


def write(job: Job, seconds: float, measured: dict[str, float]) -> None:
    """Write final.pt and summary.json (the leader); `seconds` are those of this attempt."""
    steps = job.checkpoints.last.steps() if job.enough else job.total
    summary: dict[str, Any] = {
        "run": job.run.id,
        "identity": job.identity,
        "strategy": job.run.strategy,
        "learners": job.run.learners,
        "super_learner": job.run.super_learner,
        "schedule": job.run.schedule,
        "epochs": job.settings.training.epochs,
        "steps": steps,
        "mixes": job.engine.rounds,
        "mixes_per_step": job.engine.rounds / max(1, steps),
        "device": job.device.type,
        "threads": torch.get_num_threads(),
        "arithmetic": job.gradients.arithmetic,
        "parameters": sum(p.numel() for p in job.model.parameters()),
        "seconds": spent(job.out, seconds),
        "weights": checksum(job.model.float()),
        **measured,
    }
    save(job.out, job.model, job.settings.model, job.train)
    write_text(job.out / "summary.json", json.dumps(summary, indent=2) + "\n")


def spent(out: Path, last: float) -> float:
    """Seconds of training of all attempts, as the rows count them; the `last` one's without any."""
    rows = rows_of(out / "metrics.jsonl")
    return max((row["seconds"] for row in rows if "seconds" in row), default=last)
