"""The table of word error rates: one row a run, one column a set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hadpsgd.config import Config
from hadpsgd.reports.rows import ResultRow, mean
from hadpsgd.tracking.results import Score, sets


@dataclass(frozen=True)
class Table:
    """Text cells under headings; columns named in `left` are aligned left."""

    headings: list[str]
    rows: list[list[str]]
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


def error_rates(config: Config, rows: Sequence[ResultRow]) -> Table:
    """Time of training, word error rates in percent with errors and words, what was chosen on dev.

    Where a set has no score, the cell says how far the run got.
    """
    names = sets(config)
    chosen = ["LM weight", "penalty", *(["neural LM"] if config.lm.neural else [])]
    headings = ["run", "strategy", "learners", "training", *names, *chosen, "MLflow run"]
    lines = [
        [
            row.label,
            row.strategy,
            row.learners,
            row.training,
            *(cell(row, name) for name in names),
            row.lm_weight,
            row.penalty,
            *([row.neural] if config.lm.neural else []),
            row.mlflow,
        ]
        for row in rows
    ]
    return Table(headings, lines, frozenset({"run", "strategy", "MLflow run"}))


def counts(config: Config, rows: Sequence[ResultRow]) -> Table:
    """Insertions, deletions and substitutions of every run on every set."""
    headings = ["run", "set", "words", "errors", "ins", "del", "sub", "WER %"]
    lines = [
        [
            row.label,
            name,
            *(str(n) for n in (score.words, score.errors, score.ins, score.dele, score.sub)),
            f"{score.wer:.2f}",
        ]
        for each in rows
        for row in each.runs
        for name in sets(config)
        if (score := row.scores.get(name))
    ]
    return Table(headings, lines, frozenset({"run", "set"}))


def cell(row: ResultRow, name: str) -> str:
    """A row's error rate on a set, or its state; of several the mean of those that have one."""
    if found := row.rates.get(name):
        missing = len(row.members) - len(found)
        return mean(found, "%.2f %%") + (f", {len(found)} of {len(row.members)}" * bool(missing))
    score = row.scores.get(name)
    return rate(score) if score else row.unscored


def rate(score: Score) -> str:
    """`6.00 % (60/1000)`."""
    return f"{score.wer:.2f} % ({score.errors}/{score.words})"


def how_chosen(config: Config) -> str:
    """What else is to be known of the choice on dev, and of the words that are counted."""
    if config.decoding.one_best:
        return "; the search keeps the best path alone, whose words they do not change"
    common = ", once for all seeds of a row" if config.scoring.one_choice else ""
    risk = "; words are those of minimum Bayes risk" if config.scoring.minimum_bayes_risk else ""
    return common + risk


def explanations(rows: Sequence[ResultRow]) -> str:
    """A line for every run of which more is known than that it is not finished."""
    runs = [run for row in rows for run in row.runs]
    return "".join(f"- {run.label} {run.explanation}\n" for run in runs if run.why)


def members(config: Config, rows: Sequence[ResultRow]) -> str:
    """The runs that are folded under rows, as text; empty where no row has several seeds."""
    folded = [row for row in rows if row.members]
    if not folded:
        return ""
    named = ", ".join(f"{row.label}: {len(row.members)}" for row in folded)
    runs = [run for row in folded for run in row.members]
    return f"""
## Seeds

Rows of several seeds ({named}) are their runs' means, with 95 % intervals over seeds (Student's t).
The runs:

{error_rates(config, runs).markdown()}"""


VIRTUAL = (
    "Learners of runs in virtual time share one process: their weights are trained as those of "
    "processes are, their seconds are simulated."
)


def _virtual(rows: Sequence[ResultRow]) -> str:
    return f"\n{VIRTUAL}\n" if any(row.simulated for row in rows) else ""


def _origins(origins: Sequence[str]) -> str:
    if not origins:
        return ""
    return f"\nMade by {'; '.join(origins)}. Other processors round differently: other errors.\n"


def page(
    config: Config,
    rows: Sequence[ResultRow],
    differences: str,
    origins: Sequence[str],
    more: str = "",
) -> str:
    """wer.md.

    Args:
        config: the config.
        rows: of the table.
        differences: what was tested, as text.
        origins: where runs were made.
        more: what else is to be known of the numbers, as a list.
    """
    synthetic = " The corpus is synthetic speech: a test bed, not a benchmark."
    said = explanations(rows) + more
    text = f"""# {config.name}: word error rates

Language model weight and insertion penalty are chosen on `dev` alone{how_chosen(config)}.\
{synthetic if config.corpus.kind == "builtin" else ""}

{error_rates(config, rows).markdown()}{said and chr(10) + said}{_virtual(rows)}\
{_origins(origins)}{members(config, rows)}
## Differences

{differences}"""
    counted = counts(config, rows)
    return f"{text}\n## Counts\n\n{counted.markdown()}" if counted.rows else text
