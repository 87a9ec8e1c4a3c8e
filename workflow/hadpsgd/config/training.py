"""The acoustic model and how it is trained."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from hadpsgd.config.base import Section

STRATEGIES = Literal["single", "ssgd", "hadpsgd"]


class Model(Section):
    """Bidirectional LSTM, linear projection, softmax over tied HMM states."""

    layers: int = Field(6, ge=1)
    """Bidirectional LSTM layers."""
    cells: int = Field(512, ge=1)
    """LSTM cells per direction."""
    projection: int = Field(256, ge=1)
    """Units of the linear projection before the softmax."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout between layers."""


class LearningRate(Section):
    """The papers' rule: linear scaling, warm-up, annealing by 1/sqrt(2) an epoch."""

    base: float = Field(0.1, gt=0)
    """Learning rate at `base_batch`."""
    base_batch: int = Field(256, ge=1)
    """Batch (subsequences) at which `base` holds; larger batches scale it linearly."""
    warmup_epochs: float = Field(0.0, ge=0)
    """Epochs of linear warm-up from `base` to the scaled rate."""
    anneal_after: float = Field(10.0, ge=0)
    """Epochs before the rate is multiplied by `anneal_factor` every epoch."""
    anneal_factor: float = Field(2**-0.5, gt=0, le=1)


class Run(Section):
    """One training run; several share every stage before training."""

    strategy: STRATEGIES = "single"
    """How learners work together: see the README's table of strategies."""
    learners: int = Field(1, ge=1)
    """Learners (processes)."""
    super_learner: int = Field(1, ge=1)
    """Learners of a super-learner (hadpsgd): gradients are allreduced inside it."""
    schedule: str = "ring"
    """Mixing schedule among (super-)learners, for strategies that mix."""

    @property
    def id(self) -> str:
        """Name of the run's folder, its rule wildcard and its row in the tables."""
        if self.strategy == "single":
            return "single"
        if self.strategy == "hadpsgd":
            return f"hadpsgd-{self.learners // self.super_learner}x{self.super_learner}"
        return f"{self.strategy}-{self.learners}"

    @model_validator(mode="after")
    def _shape(self) -> Run:
        if self.strategy == "single" and self.learners != 1:
            raise ValueError(f"strategy single has 1 learner, not {self.learners}")
        if self.strategy != "single" and self.learners < 2:
            raise ValueError(f"strategy {self.strategy} needs at least 2 learners")
        if self.learners % self.super_learner:
            raise ValueError(
                f"{self.learners} learners cannot be divided into super-learners of "
                f"{self.super_learner}"
            )
        return self


class Training(Section):
    """Optimisation; batches count subsequences over all learners."""

    runs: list[Run] = Field([Run()], min_length=1)
    epochs: int = Field(16, ge=1)
    batch: int = Field(256, ge=1)
    """Total batch, in subsequences, over all learners."""
    learning_rate: LearningRate = LearningRate()
    momentum: float = Field(0.9, ge=0, lt=1)
    """Momentum of SGD. The papers do not state theirs; 0.9 is ours."""
    nesterov: bool = False
    weight_decay: float = Field(0.0, ge=0)
    clip_norm: float = Field(0.0, ge=0)
    """Clip the gradient to this norm; 0 does not."""
    precision: Literal["fp32", "tf32", "bf16"] = "fp32"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: int = Field(0, ge=0)
    """Threads of a learner; 0 takes cores / learners of the host, at least 1."""
    checkpoint_minutes: float = Field(5.0, gt=0)
    """Minutes between checkpoints; a kill loses at most the work since the last."""
    keep_checkpoints: int = Field(2, ge=1)

    @model_validator(mode="after")
    def _names(self) -> Training:
        ids = [run.id for run in self.runs]
        for name in ids:
            if ids.count(name) > 1:
                raise ValueError(f"two runs have the name '{name}'")
        for run in self.runs:
            if self.batch % run.learners:
                raise ValueError(
                    f"batch {self.batch} cannot be divided among {run.learners} learners "
                    f"of run '{run.id}'"
                )
        return self
