"""What a config's results folder holds: scores, training summaries, curves."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from hadpsgd.config import Config, run_key
from hadpsgd.config.training import Run
from hadpsgd.errors import UserError
from hadpsgd.tracking import metrics_file
from hadpsgd.tracking.metrics_file import Row


@dataclass(frozen=True)
class Score:
    """Word errors of one run on one set."""

    words: int
    sub: int
    ins: int
    dele: int
    sentences: int

    @property
    def errors(self) -> int:
        """Substitutions, insertions and deletions."""
        return self.sub + self.ins + self.dele

    @property
    def wer(self) -> float:
        """Word error rate in percent."""
        return 100 * self.errors / self.words if self.words else float("nan")


@dataclass(frozen=True)
class RunResult:
    """One row of the table: a training run and its scores."""

    run: Run
    key: str
    """Name of its folders."""
    folder: Path
    """Of its training."""
    scored: Path
    """Of its scoring."""
    scores: dict[str, Score]
    tuned: Row
    summary: Row
    metrics: list[Row]


def results_folder(config: Config) -> Path:
    """Where a config's results lie."""
    return Path(config.results) / config.name


def sets(config: Config) -> tuple[str, ...]:
    """Columns of the table: the development set, then the test sets."""
    return ("dev", *config.tests)


def read_score(file: Path) -> Score:
    """Read wer.json.

    Raises:
        UserError: the file is missing, not JSON, or lacks a count.
    """
    counts = read_json(file)
    try:
        return Score(
            words=int(counts["words"]),
            sub=int(counts["sub"]),
            ins=int(counts["ins"]),
            dele=int(counts["del"]),
            sentences=int(counts.get("sentences", 0)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"no usable count: {error}", where=file, fix="Score it again") from None


def read_result(config: Config, run: Run, *, partial: bool = False) -> RunResult:
    """Everything known of a run; with `partial` what is missing is left out.

    Raises:
        UserError: a file is broken, or missing and not `partial`.
    """
    base = results_folder(config)
    key = run_key(config, run.id)
    score, folder = base / "score" / key, base / "runs" / key

    def wanted(file: Path) -> bool:
        return file.exists() or not partial

    files = {name: score / name / "wer.json" for name in sets(config)}
    return RunResult(
        run=run,
        key=key,
        folder=folder,
        scored=score,
        scores={name: read_score(file) for name, file in files.items() if wanted(file)},
        tuned=read_json(score / "tuned.json") if wanted(score / "tuned.json") else {},
        summary=read_json(folder / "summary.json") if wanted(folder / "summary.json") else {},
        metrics=metrics_file.read(folder / metrics_file.FILE),
    )


def read_results(config: Config, *, partial: bool = False) -> list[RunResult]:
    """All runs of a config, in its order; raises as `read_result`."""
    return [read_result(config, run, partial=partial) for run in config.training.runs]


def read_json(file: Path) -> Row:
    """Read one JSON object; UserError where it is missing or broken."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError("missing", where=file, fix="Run the workflow to its end") from None
    except ValueError as error:
        raise UserError(f"not JSON: {error}", where=file, fix="Remove it and run again") from None
    if not isinstance(content, dict):
        raise UserError("not a JSON object", where=file, fix="Remove it and run again")
    return content
