"""The table of word error rates: one row a run, one column a set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hadpsgd.config import Config
from hadpsgd.tracking.results import RunResult, Score, sets
from hadpsgd.tracking.sync import Tracked

MISSING = "-"
NOT_UPLOADED = "not uploaded"
Rows = list[list[str]]


@dataclass(frozen=True)
class Table:
    """Text cells under headings; columns named in `left` are aligned left."""

    headings: list[str]
    rows: Rows
    left: frozenset[str] = frozenset()

    def markdown(self) -> str:
        """The table in Markdown, its columns lined up for plain text too."""
        lines = [self.headings, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.headings))]
        is_left = [heading in self.left for heading in self.headings]
        marks = [
            "-" * width if left else "-" * (width - 1) + ":"
            for width, left in zip(widths, is_left, strict=True)
        ]
        padded = [
            [
                cell.ljust(width) if left else cell.rjust(width)
                for cell, width, left in zip(line, widths, is_left, strict=True)
            ]
            for line in lines
        ]
        return "".join(f"| {' | '.join(line)} |\n" for line in (padded[0], marks, *padded[1:]))


def error_rates(config: Config, results: Sequence[RunResult], tracked: Sequence[Tracked]) -> Table:
    """Word error rates in percent with errors and words, and what was chosen on dev."""
    names = sets(config)
    ids = {run.run: run.mlflow_run for run in tracked}
    chosen = ["acoustic scale", "penalty"]
    headings = ["run", "strategy", "learners", *names, *chosen, "MLflow run"]
    rows = [
        [
            result.run.id,
            result.run.strategy,
            str(result.run.learners),
            *(rate(result.scores.get(name)) for name in names),
            acoustic_scale(result),
            number(result.tuned.get("word_penalty")),
            ids.get(result.run.id) or NOT_UPLOADED,
        ]
        for result in results
    ]
    return Table(headings, rows, frozenset({"run", "strategy", "MLflow run"}))


def counts(config: Config, results: Sequence[RunResult]) -> Table:
    """Insertions, deletions and substitutions of every run on every set."""
    headings = ["run", "set", "words", "errors", "ins", "del", "sub", "WER %"]
    rows = [
        [
            result.run.id,
            name,
            *(str(n) for n in (score.words, score.errors, score.ins, score.dele, score.sub)),
            f"{score.wer:.2f}",
        ]
        for result in results
        for name in sets(config)
        if (score := result.scores.get(name))
    ]
    return Table(headings, rows, frozenset({"run", "set"}))


def rate(score: Score | None) -> str:
    """`6.00 % (60/1000)`."""
    return f"{score.wer:.2f} % ({score.errors}/{score.words})" if score else MISSING


def acoustic_scale(result: RunResult) -> str:
    """The scale of acoustic scores that dev chose: the inverse of the LM weight."""
    weight = result.tuned.get("lm_weight")
    return number(1 / weight) if isinstance(weight, int | float) and weight else MISSING


def number(value: object) -> str:
    """A number in few digits, or a dash."""
    return f"{value:.4g}" if isinstance(value, int | float) else MISSING


def page(
    config: Config, results: Sequence[RunResult], tracked: Sequence[Tracked], differences: str
) -> str:
    """wer.md; `differences` is what was tested, as text."""
    synthetic = " The corpus is synthetic speech: a test bed, not a benchmark."
    return f"""# {config.name}: word error rates

Acoustic scale and insertion penalty are chosen on `dev` alone.\
{synthetic if config.corpus.kind == "builtin" else ""}

{error_rates(config, results, tracked).markdown()}
## Differences

{differences}
## Counts

{counts(config, results).markdown()}"""
