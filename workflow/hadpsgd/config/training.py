"""Training runs: how learners work together, and what a run has otherwise than the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from hadpsgd.config.base import DECIDES_IF_GIVEN, DECIDES_NOTHING, Section
from hadpsgd.config.changes import changes_of, given
from hadpsgd.config.settings import Model, Settings
from hadpsgd.decentralized.strategies.registry import STRATEGIES as ENGINE
from hadpsgd.decentralized.strategies.registry import Strategy, find
from hadpsgd.decentralized.strategies.strategy import UNROUNDED
from hadpsgd.decentralized.topology.schedules import SCHEDULES

DDP = "ddp"
"""The strategy that is torch's, not the engine's."""
LONGEST_ID = 80
"""Characters of a run's id, which names files."""

if TYPE_CHECKING:
    from hadpsgd.config.changes import Changes as ModelChanges
    from hadpsgd.config.changes import Changes as SettingsChanges

    StrategyName = str
    AmongName = str
    ScheduleName = str
else:
    StrategyName = Literal[(*ENGINE, DDP)]
    AmongName = Literal[tuple(name for name, kind in ENGINE.items() if kind.among_super_learners)]
    ScheduleName = Literal[tuple(SCHEDULES)]
    ModelChanges = changes_of(Model)
    SettingsChanges = changes_of(Settings)

_SHORT = {"learning_rate.base": "lr", "precision": "", "device": ""}
"""Names of keys in a run's id, where they are not the keys themselves."""
Seeds = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]


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


class Virtual(Section):
    """Times of a run in virtual time; those of links and of single learners are `injected`."""

    compute_seconds: float = Field(1.0, gt=0)
    """Seconds of a gradient of a learner that `injected` does not slow down."""
    inside_seconds: float = Field(0.0, ge=0)
    """Seconds of the gradients' allreduce inside a super-learner."""
    model_mib: float = Field(0.0, ge=0)
    """MiB of a model on the links; 0 takes the run's own model."""


class Run(SettingsChanges):
    """One training run; several share every stage before training.

    Every key of `training` but `runs`, and under `model` every key of `model`, may be given for
    this run alone. Keys left out are the common ones.
    """

    name: str = Field("", pattern=r"^[A-Za-z0-9_-]*$", json_schema_extra=DECIDES_NOTHING)
    """Name of the run; made of strategy, learners, schedule and the keys that it has otherwise
    where it is empty."""
    seed: int | None = Field(None, ge=0)
    """Seed of this run, in place of `training.seed` and `training.seeds`."""
    seeds: Seeds | None = None
    """Train once with each seed: `single-s1`, `single-s2`, one row with their mean."""
    model: ModelChanges | None = None
    strategy: StrategyName = "single"
    """How learners work together (docs/strategies.md)."""
    learners: int = Field(1, ge=1, le=256)
    """Learners (processes, unless `launcher` is virtual)."""
    launcher: Literal["processes", "virtual"] = "processes"
    """A process for each learner, or all learners in one process in virtual time, where gradients
    and messages take the time that `virtual` and `injected` say (docs/virtual-runs.md)."""
    virtual: Virtual = Virtual()
    super_learner: int = Field(1, ge=1)
    """Learners of a super-learner (hadpsgd): gradients are allreduced inside it."""
    among: AmongName = "adpsgd"
    """Strategy among the super-learners (hadpsgd)."""
    schedule: ScheduleName = "ring"
    """Mixing schedule among (super-)learners; by default the ring, for `rand` the random ring,
    for `d1d`, `local` and `diloco` the complete graph, for `noloco` `random-partner`, for `sgp` the
    one-peer exponential graph. With `random-partner` the learners of `adpsgd` draw partners at
    their own pace and follow no rounds."""
    pace: int = Field(1, ge=1)
    """Rounds of mixing that a learner starts of itself during a gradient (asynchronous ones)."""
    max_staleness: int = Field(64, ge=1)
    """Mixes that a gradient may miss at most (asynchronous strategies)."""
    wire: Literal["float32", "bfloat16", "int8"] = "float32"
    """Weights on their way to partners: as they are, or rounded to a half or a quarter of the
    bytes; what is rounded off goes with the next message (adpsgd, rand, hadpsgd among adpsgd)."""
    average_every: int = Field(8, ge=1)
    """Local steps between averages (local, diloco) or between exchanges (noloco)."""
    outer_rate: float = Field(0.7, gt=0)
    """Learning rate of the outer steps (diloco, noloco)."""
    outer_momentum: float | None = Field(None, ge=0, lt=1)
    """Momentum of the outer steps; by default 0.9 for diloco, 0.5 for noloco."""
    synchronous_epochs: float = Field(0.0, ge=0)
    """Epochs of shared gradients before the local steps (local)."""
    injected: Injected = Injected()
    probe: bool = Field(False, json_schema_extra=DECIDES_IF_GIVEN)
    """Measure after each epoch how steep the loss is, and what the differences of the learners'
    weights do to their gradients (`launcher: virtual`; docs/virtual-runs.md). It decides no bit of
    the weights."""
    decode: bool = Field(True, json_schema_extra=DECIDES_NOTHING)
    """Decode and score it, too; a run that is to show how training goes needs neither."""

    @model_validator(mode="before")
    @classmethod
    def _default_schedule(cls, values: Any) -> Any:
        if isinstance(values, dict) and "schedule" not in values:
            name, among = values.get("strategy", "single"), values.get("among", "adpsgd")
            names = list(ENGINE)  # what a user wrote need not be hashable
            if name in names and among in names:
                return values | {"schedule": find(name, among=among).default_schedule}
        return values

    @property
    def kind(self) -> type[Strategy] | None:
        """The engine's strategy, of super-learners the one among them; None for torch's DDP."""
        return None if self.strategy == DDP else find(self.strategy, among=self.among)

    @property
    def id(self) -> str:
        """Name of the run's folder, its rule wildcard and its row in the tables."""
        virtual = ["virtual"] if self.simulated else []
        return self.name or "-".join([self._strategy_id(), *virtual, *self._changes_id()])

    def _changes_id(self) -> list[str]:
        """The keys that this run has otherwise: `layers4`, `lr0.2`, `bf16`, `no-nesterov`."""
        own = list(given(self, set(SettingsChanges.model_fields) - {"seed"} | {"model"}))
        parts = [short(key, value) for key, value in own]
        return parts if self.seed is None else [*parts, f"s{self.seed}"]

    def _strategy_id(self) -> str:
        if self.strategy == "single":
            return "single"
        if self.strategy == "hadpsgd":
            parts = [f"hadpsgd-{self.learners // self.super_learner}x{self.super_learner}"]
            parts += [self.among] if self.among != "adpsgd" else []
        else:
            parts = [f"{self.strategy}-{self.learners}"]
        if self.schedule != (self.kind.default_schedule if self.kind else "ring"):
            parts.append(self.schedule)
        parts += [self.wire] if self.wire != UNROUNDED else []
        return "-".join(parts)

    @property
    def simulated(self) -> bool:
        """Whether its time is virtual."""
        return self.launcher == "virtual"

    @property
    def processes(self) -> int:
        """How many processes train it."""
        return 1 if self.simulated else self.learners

    @property
    def shared_gradients(self) -> int:
        """Learners over which every gradient is averaged: the size of the engine's groups."""
        return self.super_learner if self.kind is not None and self.kind.mixes else self.learners

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
        directed = not SCHEDULES[self.schedule].symmetric
        misfit = self.kind and self.kind.misfit(self.schedule, symmetric=not directed)
        if misfit:
            raise ValueError(misfit)
        if self.wire != UNROUNDED and not (self.kind and self.kind.rounds()):
            raise ValueError(f"strategy {self.strategy} cannot send weights as {self.wire}")
        unknown = [i for i in self.injected.slow_learners if not 0 <= i < self.learners]
        if unknown:
            raise ValueError(f"injected.slow_learners: there is no learner {unknown[0]}")
        pairs = self.kind and self.kind.mixes and not self.kind.collective
        if self.injected.drop and not pairs:
            raise ValueError(
                f"strategy {self.strategy} has no exchanges of two that injected.drop leaves out"
            )
        if self.injected.drop and directed and not (self.kind and self.kind.push_sum):
            raise ValueError(
                f"schedule '{self.schedule}' is directed: an exchange lost one way would shift the "
                "mean of the weights"
            )
        if self.kind and not self.kind.synchronous and self.schedule == "random-partner":
            if self.super_learner > 1:
                raise ValueError("super-learners do not draw partners: choose another schedule")
            if self.injected.drop:
                raise ValueError("random-partner has no rounds that injected.drop could leave out")
        if self.simulated and self.strategy == "ddp":
            raise ValueError("strategy ddp is torch's own: it has no virtual learners; ssgd has")
        if not self.simulated and self.virtual != Virtual():
            raise ValueError("`virtual` gives the times of a run whose launcher is virtual")
        if self.probe and not (self.simulated and self.learners > 1):
            raise ValueError("`probe` is for several learners of a run whose launcher is virtual")
        if self.strategy == "hadpsgd" and self.synchronous_epochs:
            raise ValueError("synchronous_epochs are for strategy local alone")

    @model_validator(mode="after")
    def _one_way_of_seeding(self) -> Run:
        check_seeds(self.seed, self.seeds, "")
        return self

    @model_validator(mode="after")
    def _named(self) -> Run:
        if len(self.id) > LONGEST_ID:
            raise ValueError(f"'{self.id}' is too long for names of files: give the run a `name`")
        return self

    def members(self, seeds: Sequence[int]) -> list[Run]:
        """The runs that it stands for: one for each of its seeds; `seeds` are the common ones."""
        wanted = self.seeds or (seeds if self.seed is None else ())
        return [
            self.model_copy(
                update={
                    "seed": seed,
                    "seeds": None,
                    "name": f"{self.name}-s{seed}" if self.name else "",
                }
            )
            for seed in wanted
        ] or [self]

    @property
    def together(self) -> Run:
        """How its learners work together, without what it has otherwise."""
        changes = dict.fromkeys(SettingsChanges.model_fields)
        return self.model_copy(update={**changes, "model": None, "seeds": None})


def short(key: str, value: object) -> str:
    """A key and its value as part of an id."""
    name = _SHORT.get(key, key.rpartition(".")[2])
    if isinstance(value, bool):
        return name if value else f"no-{name}"
    if isinstance(value, str):
        return f"{name}-{value}".removeprefix("-")
    return f"{name}{value:g}".replace("+", "")


def check_seeds(seed: int | None, seeds: Sequence[int] | None, where: str) -> None:
    if seed is not None and seeds:
        raise ValueError(f"give {where}seed or {where}seeds, not both")
    if seeds and len(set(seeds)) < len(seeds):
        raise ValueError(f"{where}seeds: {list(seeds)} has one twice")
