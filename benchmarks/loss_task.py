"""What `time_to_loss.py` trains: a config, its examples, and the held-out loss of any weights.

Labels are the largest of fixed projections of a frame, so there is something to learn. Our runs
take the config as `hadpsgd train` does; peers read the same minibatches through the same code.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils import vector_to_parameters
from training_contestants import MOMENTUM, Task

from hadpsgd.config import Config, load
from hadpsgd.egs.dataset import Dataset, Plan
from hadpsgd.egs.layout import Layout
from hadpsgd.egs.shards import describe, write_shard
from hadpsgd.training.data import Feed

STEPS_PER_EPOCH = 20
HELD_OUT = 1000
"""Subsequences."""
SEED = 1
"""Of the first weights in `Task.model`, and of the order of examples."""


@dataclass(frozen=True)
class LossTask(Task):
    """A small network: with more learners than cores, gradients must leave the cores free."""

    layers: int = 1
    cells: int = 32
    projection: int = 32
    pdfs: int = 20
    dim: int = 20
    frames: int = 8
    batch: int = 64
    """Subsequences of a step, over all learners."""
    rate: float = 0.2
    """All contestants'; gradients of d1d, a round late, bear no more."""
    folder: Path = Path()
    """Where examples and config lie."""
    epochs: int = 4

    @property
    def steps(self) -> int:
        """Of the run."""
        return self.epochs * STEPS_PER_EPOCH

    @property
    def parameters(self) -> int:
        """Of the network."""
        return sum(p.numel() for p in self.model().parameters())

    def write(self, runs: list[dict[str, Any]]) -> None:
        """Examples and config."""
        self._examples("train", self.batch * STEPS_PER_EPOCH, seed=1)
        self._examples("dev", HELD_OUT, seed=2)
        content = {
            "name": "loss",
            "seed": SEED,
            "results": str(self.folder / "results"),
            "corpus": {"kind": "builtin"},
            "model": {"layers": self.layers, "cells": self.cells, "projection": self.projection},
            "training": {
                "epochs": self.epochs,
                "batch": self.batch,
                "learning_rate": {
                    "base": self.rate,
                    "base_batch": self.batch,
                    "anneal_after": self.epochs,
                },
                "momentum": MOMENTUM,
                "threads": 1,
                "runs": runs,
            },
            "site": {"rendezvous_seconds": 60},
        }
        self.config_file.write_text(yaml.safe_dump(content))

    @property
    def config_file(self) -> Path:
        """Of all contestants."""
        return self.folder / "config.yaml"

    @cached_property
    def config(self) -> Config:
        """As the processes read it."""
        return load(self.config_file)

    def feed(self, rank: int, learners: int) -> Feed:
        """A learner's minibatches."""
        train = Dataset(self.folder / "train")
        plan = Plan(size=len(train), batch=self.batch, seed=SEED)
        return Feed(train, plan, rank=rank, learners=learners, device=torch.device("cpu"))

    def _examples(self, name: str, count: int, *, seed: int) -> None:
        folder = self.folder / name
        folder.mkdir(parents=True)
        draws = np.random.default_rng(seed)
        features = draws.normal(size=(count, self.frames, self.dim)).astype(np.float32)
        projections = np.random.default_rng(99).normal(size=(self.dim, self.pdfs))
        labels = (features @ projections).argmax(-1).astype(np.int32)
        layout = Layout.plain(frames=self.frames, dim=self.dim)
        rows = np.zeros(count, layout.row)
        rows["logmel"], rows["labels"] = features, labels
        shard = write_shard(folder / "examples.0000.npy", rows)
        describe(folder, layout, [shard], np.bincount(labels.ravel(), minlength=self.pdfs))


class HeldOut:
    """Loss of the held-out examples."""

    def __init__(self, task: LossTask) -> None:
        self._module = task.model()
        dev = Dataset(task.folder / "dev")
        plan = Plan(size=len(dev), batch=len(dev), seed=SEED)
        feed = Feed(dev, plan, rank=0, learners=1, device=torch.device("cpu"))
        self._examples: list[tuple[Tensor, Tensor]] = [feed.example(step=0, rank=0)]

    def loss(self, weights: NDArray[np.float32]) -> float:
        """Of weights [parameters], in the order of the module's parameters."""
        with torch.no_grad():
            vector_to_parameters(torch.from_numpy(weights), self._module.parameters())
            return float(np.mean([float(self._module(x, y)) for x, y in self._examples]))
