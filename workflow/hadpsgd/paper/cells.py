"""Training runs as MLflow has them, and rows of such that differ in their seed alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from hadpsgd.config import Config
from hadpsgd.errors import UserError
from hadpsgd.paper.blocks import NOTHING, Kind, Value
from hadpsgd.paper.wanted import check_tracked
from hadpsgd.scoring.seeds import mean_over_seeds
from hadpsgd.tracking.failures import NotStoredError
from hadpsgd.tracking.recorder import Connection
from hadpsgd.tracking.results import State
from hadpsgd.tracking.scoring_run import WER
from hadpsgd.tracking.store import Store, StoredRun
from hadpsgd.tracking.sync import tracked_runs
from hadpsgd.tracking.training_run import FINAL, STATUS

Curve = list[tuple[float, float]]
LANDSCAPE = (
    "probe_difference_noise",
    "probe_minibatch_noise",
    "probe_noise_per_distance",
    "probe_effective_rate",
    "probe_sharpness",
)
"""Curves of runs with `probe`: hadpsgd.training.probe."""
CURVES = ("heldout_loss", "distance_from_mean", "virtual_seconds", *LANDSCAPE)
"""Read at whole epochs."""


@dataclass(frozen=True)
class Trained:
    """A training run of the store."""

    id: str
    stored: StoredRun
    curves: dict[str, Curve]
    """Name -> (epoch, value)."""

    @property
    def diverged(self) -> bool:
        """Whether there is no model."""
        return self.stored.tags.get(STATUS) == State.DIVERGED

    @property
    def loss(self) -> float:
        """Held-out loss of the final model, the mean of all learners, in nats a frame.

        Infinite where training diverged.
        """
        found = self.metric(f"{FINAL}/heldout_loss")
        return math.inf if self.diverged or math.isnan(found) else found

    def metric(self, name: str) -> float:
        """The last value of a metric; NaN where there is none."""
        return self.stored.metrics.get(name, math.nan)

    @property
    def seconds(self) -> float:
        """Of the run's clock: virtual ones where its time is virtual, those of processes else."""
        simulated = self.stored.tags.get("time") == "virtual"
        return self.metric("epoch/virtual_seconds" if simulated else "epoch/seconds")


@dataclass(frozen=True)
class Row:
    """Runs that differ in their seed alone."""

    name: str
    runs: tuple[Trained, ...]

    @cached_property
    def params(self) -> dict[str, str]:
        """Settings, under flat names."""
        return self.runs[0].stored.params

    @property
    def ids(self) -> tuple[str, ...]:
        """Of the MLflow runs."""
        return tuple(run.id for run in self.runs)

    @property
    def kind(self) -> Kind:
        """How it was made."""
        virtual = self.runs[0].stored.tags.get("time") == "virtual"
        return "virtual" if virtual else "measured"

    @property
    def strategy(self) -> str:
        """Its strategy; of super-learners with their size, of another schedule with that."""
        found, size = self.params["run.strategy"], self.params["run.super_learner"]
        return f"{found}, by {size}" if size != "1" else found

    @property
    def learners(self) -> int:
        """How many."""
        return int(self.params["run.learners"])

    @property
    def batch(self) -> int:
        """Subsequences of a step, over all learners."""
        return int(self.params["training.batch"])

    @property
    def base_rate(self) -> float:
        """Learning rate at the base batch."""
        return float(self.params["training.learning_rate.base"])

    @property
    def rate(self) -> float:
        """Learning rate that the warm-up ends at."""
        return self.base_rate * self.batch / float(self.params["training.learning_rate.base_batch"])

    @property
    def slow(self) -> float:
        """How many times slower the slowest learner is made."""
        prefix = "run.injected.slow_learners."
        return max((float(v) for k, v in self.params.items() if k.startswith(prefix)), default=1.0)

    @property
    def losses(self) -> list[float]:
        """Held-out losses of the seeds."""
        return [run.loss for run in self.runs]

    @property
    def loss(self) -> float:
        """Their mean: infinite where one has diverged."""
        return sum(self.losses) / len(self.losses)

    def value(self, of: Callable[[Trained], float], form: str) -> Value:
        """Mean over the seeds, with its interval."""
        return of_seeds([of(run) for run in self.runs], form, kind=self.kind, runs=self.ids)

    def word_errors(self, sets: Sequence[str]) -> Value:
        """`7.6/13.1`: word error rates of the sets; a dash where they are not decoded."""
        found = [[run.metric(f"{WER}/{each}") for run in self.runs] for each in sets]
        if any(math.isnan(rate) for rate in chain(*found)):
            return Value(text=NOTHING)
        values = [of_seeds(rates, "%.1f") for rates in found]
        notes = [value.note for value in values if value.note]
        return Value(
            text=" / ".join(value.text for value in values),
            kind=self.kind,
            note=" / ".join(notes),
            runs=self.ids,
        )

    def curve(self, name: str) -> Curve:
        """Mean of the seeds at each whole epoch that all of them have."""
        each = [dict(run.curves.get(name, ())) for run in self.runs]
        common = sorted(set.intersection(*(set(points) for points in each)))
        return [(x, sum(points[x] for points in each) / len(each)) for x in common]


def of_seeds(
    values: Sequence[float], form: str, *, kind: Kind | None = None, runs: tuple[str, ...] = ()
) -> Value:
    """A mean over seeds with its 95 % interval (Student's t); how many ended, where not all did."""
    ended = [value for value in values if math.isfinite(value)]
    if any(math.isnan(value) for value in values):
        return Value(text=NOTHING, runs=runs)
    if len(ended) < len(values):
        return Value(
            text="diverged",
            kind=kind,
            note=f"{len(values) - len(ended)} of {len(values)}",
            runs=runs,
        )
    found = mean_over_seeds(values)
    note = f"{form % found.low} .. {form % found.high}" if len(values) > 1 else "one seed"
    return Value(text=form % found.value, kind=kind, note=note, runs=runs)


def read(config: Config) -> dict[str, Row]:
    """Rows of a config by name, read from its store by the runs' ids.

    Raises:
        UserError: nothing is tracked, a run is not in the store, or the store does not answer.
    """
    check_tracked(config)
    ids = {run.run: run.mlflow_run for run in tracked_runs(config)}
    missing = [run.id for run in config.training.members if not ids.get(run.id)]
    if missing:
        raise UserError(
            f"{len(missing)} runs are not in MLflow, {missing[0]} among them",
            fix="`snakemake paper` makes them; `hadpsgd track --upload` sends what waits",
        )
    try:
        store = Connection(config).store()
        return {
            name: Row(name, tuple(_trained(store, ids[run.id]) for run in runs))
            for name, runs in config.training.rows.items()
        }
    except NotStoredError as error:
        raise UserError(str(error), fix="Start the server or change tracking.uri") from None


def _trained(store: Store, run_id: str) -> Trained:
    stored = store.read(run_id)
    wanted = [name for name in CURVES if f"epoch/{name}" in stored.metrics]
    return Trained(run_id, stored, {n: store.history(run_id, metric=f"epoch/{n}") for n in wanted})


def ids(rows: Iterable[Row]) -> tuple[str, ...]:
    """Of the MLflow runs of some rows, each once."""
    return tuple(dict.fromkeys(chain(*(row.ids for row in rows))))
