"""What training leaves: the mean of the learners' weights as final.pt, and summary.json."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch

from hadpsgd.files import write_text
from hadpsgd.models.build import ModelMeta, SavedShape, save_model
from hadpsgd.training.evaluation import evaluate, named
from hadpsgd.training.job import Job


def consensus(job: Job) -> float:
    """Load the mean of all learners' last weights into the model; their distance from it.

    The distance is sqrt(1/L sum_i |w_i - mean|^2) / |mean| over the L super-learners that lived;
    summed in their order, in double precision.
    """
    job.checkpoints.wait_until_complete(job.meeting.timeout.total_seconds())
    nodes = sorted(job.checkpoints.last.parts())
    mean = torch.zeros(job.engine.weights.shape, dtype=torch.float64)
    for node in nodes:
        mean += job.checkpoints.last.load(node)["weights"]
    mean /= len(nodes)
    squares = [
        float((job.checkpoints.last.load(node)["weights"] - mean).square().sum()) for node in nodes
    ]
    job.engine.load_weights(mean)
    return float(np.sqrt(np.mean(squares)) / mean.norm())


def log_priors(counts: np.ndarray) -> torch.Tensor:
    """Log of each pdf-id's share of the frames; one never seen counts as seen once."""
    shares = np.maximum(counts, 1).astype(np.float64)
    return torch.from_numpy(np.log(shares / shares.sum())).float()


def write(job: Job, seconds: float) -> None:
    """Average, score on all held-out examples, write final.pt and summary.json (the leader)."""
    distance = consensus(job)
    held_out = named(evaluate(job.model, job.dev_feed.share(0, 1)))
    meta = ModelMeta(
        model_config=SavedShape.of(job.config.model),
        input_dim=job.train.dim,
        streams=tuple(job.train.streams),
        num_pdfs=job.train.num_pdfs,
        log_priors=log_priors(job.train.pdf_counts),
    )
    summary: dict[str, Any] = {
        "run": job.run.id,
        "identity": job.identity,
        "strategy": job.run.strategy,
        "learners": job.run.learners,
        "super_learner": job.run.super_learner,
        "schedule": job.run.schedule,
        "epochs": job.config.training.epochs,
        "steps": job.engine.steps,
        "mixes": job.engine.rounds,
        "mixes_per_step": job.engine.rounds / max(1, job.engine.steps),
        "parameters": sum(p.numel() for p in job.model.parameters()),
        "seconds": seconds,
        "consensus_distance": distance,
        **held_out,
    }
    save_model(job.out / "final.pt", job.model.float(), meta)
    write_text(job.out / "summary.json", json.dumps(summary, indent=2) + "\n")
