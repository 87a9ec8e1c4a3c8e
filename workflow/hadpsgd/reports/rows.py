"""Rows of the table of word error rates: what wer.md, report.html and the terminal show alike.

Runs that differ in their seed alone are one row: their mean, and they themselves folded under it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from hadpsgd.config import Config
from hadpsgd.config.training import Run
from hadpsgd.reports.seconds import spent
from hadpsgd.scoring.seeds import mean_over_seeds
from hadpsgd.tracking.beside import Beside
from hadpsgd.tracking.results import RunResult, Score, State
from hadpsgd.tracking.sync import Tracked

MISSING = "-"
NOT_UPLOADED = "not uploaded"


@dataclass(frozen=True, kw_only=True)
class ResultRow:
    """One row: a run, how it ended, its scores by set; or the mean of several."""

    run: Run | None
    """Of several the first; None for what is decoded beside the runs."""
    key: str
    """Name of its folders."""
    state: State
    why: str
    scores: dict[str, Score]
    lm_weight: str
    """Language model weight that dev chose."""
    penalty: str
    """Word insertion penalty that dev chose."""
    mlflow: str
    """Id of its MLflow run."""
    neural: str = MISSING
    """Share of the neural language model that dev chose."""
    seconds: float | None = None
    """Of its training; of several runs their mean, None where nothing is known."""
    name: str = ""
    """Of a row of several and of what is decoded beside the runs; a run is called by its id."""
    together: str = ""
    """Of an ensemble, what is decoded together: `3 runs`, `3 runs and GMM`."""
    members: tuple[ResultRow, ...] = ()
    """The runs of a row that has seeds."""
    rates: dict[str, list[float]] = field(default_factory=dict)
    """Error rates of the members that are scored, in percent, by set."""

    @property
    def label(self) -> str:
        """What it is called in every table."""
        return self.name or (self.run.id if self.run else MISSING)

    @property
    def strategy(self) -> str:
        """Its strategy, and whether its time is virtual; of an ensemble what it is made of."""
        if self.together:
            return f"{self.together} together"
        return self.run.strategy + ", virtual time" * self.simulated if self.run else MISSING

    @property
    def learners(self) -> str:
        """How many it has."""
        return str(self.run.learners) if self.run else MISSING

    @property
    def simulated(self) -> bool:
        """Whether its time is virtual."""
        return self.run is not None and self.run.simulated

    @property
    def training(self) -> str:
        """How long training took: `61 s`, or `61 virtual s`."""
        if self.seconds is None:
            return MISSING
        return f"{self.seconds:.0f} {'virtual ' * self.simulated}s"

    @property
    def analysed(self) -> bool:
        """Whether there are pages of its errors."""
        return bool(self.together) or (self.run is not None and self.run.decode)

    @property
    def unscored(self) -> str:
        """What stands where a score would."""
        return "not decoded" if self.state is State.FINISHED else str(self.state)

    @property
    def runs(self) -> tuple[ResultRow, ...]:
        """Its members, or itself."""
        return self.members or (self,)

    @property
    def explanation(self) -> str:
        """`diverged: gradient of learner 0 ...`; empty for a run that is finished."""
        if self.state is State.FINISHED:
            return "" if self.run is None or self.run.decode else self.unscored
        return f"{self.state}: {self.why}" if self.why else str(self.state)


def of_results(results: Sequence[RunResult], tracked: Sequence[Tracked]) -> list[ResultRow]:
    """One row a run, in the config's order."""
    ids = {run.run: run.mlflow_run for run in tracked}
    return [
        ResultRow(
            run=result.run,
            key=result.key,
            state=result.state,
            why=result.why,
            scores=result.scores,
            lm_weight=number(result.tuned.get("lm_weight")),
            penalty=number(result.tuned.get("word_penalty")),
            neural=number(result.tuned.get("neural_weight")),
            mlflow=ids.get(result.run.id) or NOT_UPLOADED,
            seconds=spent(result),
        )
        for result in results
    ]


def of_beside(results: Sequence[Beside], tracked: Sequence[Tracked]) -> list[ResultRow]:
    """The rows of what is decoded beside the runs."""
    ids = {each.run: each.mlflow_run for each in tracked}
    return [
        ResultRow(
            run=None,
            key=result.key,
            state=result.state,
            why=result.why,
            scores=result.scores,
            lm_weight=number(result.tuned.get("lm_weight")),
            penalty=number(result.tuned.get("word_penalty")),
            neural=number(result.tuned.get("neural_weight")),
            mlflow=ids.get(result.name) or NOT_UPLOADED,
            name=result.name,
            together=_together(result),
        )
        for result in results
    ]


def _together(result: Beside) -> str:
    """Of the GMM-HMM alone nothing."""
    if not result.runs:
        return ""
    runs = f"{len(result.runs)} run{'s' * (len(result.runs) > 1)}"
    return f"{runs} and GMM" if result.gmm else runs


def fold(config: Config, rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Runs of one row under one that is their mean, with its 95 % interval over seeds."""
    by_id = {row.label: row for row in rows}
    folded = []
    for name, runs in config.training.rows.items():
        members = [by_id[run.id] for run in runs if run.id in by_id]
        alone = [row.label for row in members] == [name]
        folded += members if alone or not members else [_mean(name, members)]
    return folded


def _mean(name: str, members: Sequence[ResultRow]) -> ResultRow:
    """One row of several; its state is that of the first member that is not finished."""
    first = next((row for row in members if row.state is not State.FINISHED), members[0])
    rates: dict[str, list[float]] = {}
    for row in members:
        for set_name, score in row.scores.items():
            rates.setdefault(set_name, []).append(score.wer)
    return ResultRow(
        run=members[0].run,
        key="",
        state=first.state,
        why="",
        scores={},
        lm_weight=_common([row.lm_weight for row in members]),
        penalty=_common([row.penalty for row in members]),
        neural=_common([row.neural for row in members]),
        mlflow=f"{sum(row.mlflow != NOT_UPLOADED for row in members)} runs",
        seconds=fmean(known) if (known := [s for row in members if (s := row.seconds)]) else None,
        name=name,
        members=tuple(members),
        rates=rates,
    )


def _common(values: Sequence[str]) -> str:
    """All that they have, each once."""
    return ", ".join(dict.fromkeys(value for value in values if value != MISSING)) or MISSING


def mean(values: Sequence[float], form: str) -> str:
    """`8.43 % (7.96 .. 8.90)`: mean and 95 % interval over seeds; of one value that alone.

    Args:
        values: of the runs of a row.
        form: of the mean, as in `%.2f %%`; bounds have the same without what follows the number.
    """
    found = mean_over_seeds(values)
    if len(values) < 2:
        return form % found.value
    low, high = (form.partition(" ")[0] % bound for bound in (found.low, found.high))
    return f"{form % found.value} ({low} .. {high})"


def number(value: object) -> str:
    """A number in few digits, or a dash."""
    return f"{value:.4g}" if isinstance(value, int | float) else MISSING
