"""The acoustic model and how it is trained."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from hadpsgd.config.base import DECIDES_NOTHING, Section
from hadpsgd.config.cluster import Cluster, shape

STRATEGIES = Literal["single", "ssgd", "ddp", "dpsgd", "adpsgd", "rand", "d1d", "local", "hadpsgd"]
SCHEDULES = Literal[
    "ring", "random-ring", "pairwise", "complete", "exponential", "one-peer-exponential"
]
DEFAULT_SCHEDULE = {"rand": "random-ring", "d1d": "complete", "local": "complete"}
"""Mixing schedules of the strategies that do not take the ring."""


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


class Injected(Section):
    """Trouble put into a run on purpose, to see what it does to a strategy."""

    slow_learners: dict[int, float] = Field({})
    """Learner -> how many times longer its gradients take."""
    spread: Literal["none", "uniform", "exponential", "lognormal"] = "none"
    """Distribution of the gradients' times around the mean, step by step; only what is slower
    than without it can be put in."""
    deviation: float = Field(0.0, ge=0)
    """Standard deviation over mean of `spread` (uniform and lognormal)."""
    link_ms: float = Field(0.0, ge=0)
    """Milliseconds that every message between learners is delayed."""
    link_mbit: float = Field(0.0, ge=0)
    """Megabits a second of each learner's link; 0 is as fast as it goes."""
    slow_links: dict[int, float] = Field({})
    """Learner -> how many times slower its link is (with link_mbit)."""
    drop: float = Field(0.0, ge=0, lt=1)
    """Share of the exchanges between two learners that do not take place."""

    @field_validator("slow_learners", "slow_links")
    @classmethod
    def _slower(cls, factors: dict[int, float]) -> dict[int, float]:
        if any(factor < 1 for factor in factors.values()):
            raise ValueError("factors are 1 or more: nothing can be made faster")
        return factors


class Run(Section):
    """One training run; several share every stage before training."""

    name: str = Field("", pattern=r"^[A-Za-z0-9_-]*$")
    """Name of the run; made of strategy, learners and schedule where it is empty."""
    strategy: STRATEGIES = "single"
    """How learners work together: see the README's table of strategies."""
    learners: int = Field(1, ge=1, le=256)
    """Learners (processes)."""
    super_learner: int = Field(1, ge=1)
    """Learners of a super-learner (hadpsgd): gradients are allreduced inside it."""
    among: Literal["adpsgd", "dpsgd", "d1d", "local"] = "adpsgd"
    """Strategy among the super-learners (hadpsgd)."""
    schedule: SCHEDULES = "ring"
    """Mixing schedule among (super-)learners; by default the ring, for `rand` the random ring,
    for `d1d` and `local` the complete graph."""
    pace: int = Field(1, ge=1)
    """Rounds of mixing that a learner starts of itself during a gradient (asynchronous ones)."""
    max_staleness: int = Field(64, ge=1)
    """Mixes that a gradient may miss at most (asynchronous strategies)."""
    average_every: int = Field(8, ge=1)
    """Local steps between averages (local)."""
    synchronous_epochs: float = Field(0.0, ge=0)
    """Epochs of shared gradients before the local steps (local)."""
    injected: Injected = Injected()

    @model_validator(mode="before")
    @classmethod
    def _default_schedule(cls, values: Any) -> Any:
        if isinstance(values, dict) and "schedule" not in values:
            kind = values.get("strategy", "single")
            kind = values.get("among", "adpsgd") if kind == "hadpsgd" else kind
            return values | {"schedule": DEFAULT_SCHEDULE.get(kind, "ring")}
        return values

    @property
    def id(self) -> str:
        """Name of the run's folder, its rule wildcard and its row in the tables."""
        if self.name or self.strategy == "single":
            return self.name or "single"
        if self.strategy == "hadpsgd":
            parts = [f"hadpsgd-{self.learners // self.super_learner}x{self.super_learner}"]
            parts += [self.among] if self.among != "adpsgd" else []
        else:
            parts = [f"{self.strategy}-{self.learners}"]
        kind = self.among if self.strategy == "hadpsgd" else self.strategy
        if self.schedule != DEFAULT_SCHEDULE.get(kind, "ring"):
            parts.append(self.schedule)
        return "-".join(parts)

    @property
    def shared_gradients(self) -> int:
        """Learners over which every gradient is averaged: the size of the engine's groups."""
        if self.strategy in ("ssgd", "single", "ddp"):
            return self.learners
        return self.super_learner

    @model_validator(mode="after")
    def _shape(self) -> Run:
        if self.strategy == "single" and self.learners != 1:
            raise ValueError(f"strategy single has 1 learner, not {self.learners}")
        if self.strategy != "single" and self.learners < 2:
            raise ValueError(f"strategy {self.strategy} needs at least 2 learners")
        if self.super_learner > 1 and self.strategy != "hadpsgd":
            raise ValueError(f"strategy {self.strategy} has no super-learners; hadpsgd has")
        if self.learners % self.super_learner:
            raise ValueError(
                f"{self.learners} learners cannot be divided into super-learners of "
                f"{self.super_learner}"
            )
        if self.strategy == "hadpsgd" and self.learners // self.super_learner < 2:
            raise ValueError(
                f"{self.learners} learners are one super-learner of {self.super_learner}: "
                "that is strategy ssgd"
            )
        self._fits()
        return self

    def _fits(self) -> None:
        """Strategy and schedule can work together."""
        kind = self.among if self.strategy == "hadpsgd" else self.strategy
        if kind in ("d1d", "local") and self.schedule != "complete":
            raise ValueError(f"{kind} averages all weights: its schedule is 'complete'")
        if kind == "rand" and self.schedule != "random-ring":
            raise ValueError("rand is AD-PSGD on the schedule 'random-ring'; choose adpsgd")
        if kind == "adpsgd" and self.schedule in ("exponential", "one-peer-exponential"):
            raise ValueError(
                f"schedule '{self.schedule}' is directed, and an asynchronous strategy needs "
                "exchanges in both directions: choose ring, random-ring, pairwise or complete, "
                "or the strategy dpsgd"
            )
        unknown = [i for i in self.injected.slow_learners if not 0 <= i < self.learners]
        if unknown:
            raise ValueError(f"injected.slow_learners: there is no learner {unknown[0]}")
        if self.injected.drop and self.schedule in ("exponential", "one-peer-exponential"):
            raise ValueError(
                f"schedule '{self.schedule}' is directed: an exchange lost one way would shift the "
                "mean of the weights"
            )
        if self.strategy == "hadpsgd" and self.synchronous_epochs:
            raise ValueError("synchronous_epochs are for strategy local alone")


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
    precision: Literal["fp32", "tf32", "bf16", "fp64"] = "fp32"
    """Of the model's arithmetic; weights are kept in fp32 (fp64: all in double precision)."""
    not_finite: Literal["stop", "skip"] = "stop"
    """A gradient that is NaN or infinite stops the run, or is left out (and counted)."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: int = Field(0, ge=0)
    """Threads of a learner; 0 takes cores / learners of the host, at least 1."""
    checkpoint_minutes: float = Field(5.0, gt=0, json_schema_extra=DECIDES_NOTHING)
    """Minutes between checkpoints; a kill loses at most the work since the last."""
    keep_checkpoints: int = Field(2, ge=1, json_schema_extra=DECIDES_NOTHING)
    """Checkpoints kept; a damaged newest one is passed over for the one before."""
    rendezvous_seconds: float = Field(300.0, gt=0, json_schema_extra=DECIDES_NOTHING)
    """Seconds that ranks wait for each other, at the start and in a silent exchange."""
    cluster: Cluster = Field(Cluster(), json_schema_extra=DECIDES_NOTHING)
    """Hosts, cores, GPUs and time of a training job."""

    @model_validator(mode="after")
    def _names(self) -> Training:
        ids = [run.id for run in self.runs]
        for name in ids:
            if ids.count(name) > 1:
                raise ValueError(f"two runs have the name '{name}'")
        for run in self.runs:
            shape(self.cluster, run.learners, self.device)
            if self.batch % run.learners:
                raise ValueError(
                    f"batch {self.batch} cannot be divided among {run.learners} learners "
                    f"of run '{run.id}'"
                )
        return self
