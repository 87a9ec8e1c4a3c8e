"""Rows of the table of word error rates: what wer.md, report.html and the terminal show alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hadpsgd.config.training import Run
from hadpsgd.tracking.results import RunResult, Score, State
from hadpsgd.tracking.sync import Tracked

MISSING = "-"
NOT_UPLOADED = "not uploaded"


@dataclass(frozen=True, kw_only=True)
class ResultRow:
    """One row: a run, how it ended, its scores by set."""

    run: Run
    key: str
    """Name of its folders."""
    state: State
    why: str
    scores: dict[str, Score]
    scale: str
    """Acoustic scale that dev chose."""
    penalty: str
    """Word insertion penalty that dev chose."""
    mlflow: str
    """Id of its MLflow run."""

    @property
    def label(self) -> str:
        """What it is called in every table."""
        return self.run.id

    @property
    def explanation(self) -> str:
        """`diverged: gradient of learner 0 ...`; empty for a run that is finished."""
        if self.state is State.FINISHED:
            return ""
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
            scale=_acoustic_scale(result),
            penalty=number(result.tuned.get("word_penalty")),
            mlflow=ids.get(result.run.id) or NOT_UPLOADED,
        )
        for result in results
    ]


def _acoustic_scale(result: RunResult) -> str:
    """The scale of acoustic scores that dev chose: the inverse of the LM weight."""
    weight = result.tuned.get("lm_weight")
    return number(1 / weight) if isinstance(weight, int | float) and weight else MISSING


def number(value: object) -> str:
    """A number in few digits, or a dash."""
    return f"{value:.4g}" if isinstance(value, int | float) else MISSING
