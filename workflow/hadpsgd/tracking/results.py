"""What a config's results folder holds: scores, training summaries, curves, how each run ended."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from hadpsgd.config import Config, row_of, run_key
from hadpsgd.config.training import Run
from hadpsgd.errors import UserError
from hadpsgd.tracking import metrics_file
from hadpsgd.tracking.metrics_file import Row

SUMMARY = "summary.json"
"""In a run's folder: what training left, or that it `diverged`, and why."""
FAILED = "failed.json"
"""In a run's folder: why its training ended without a result. The next start removes it."""


class State(StrEnum):
    """How far a run got."""

    FINISHED = "finished"
    """Trained, and scored on all sets if it is decoded."""
    DIVERGED = "diverged"
    """Its training has a result: there is no model."""
    FAILED = "failed"
    """Its training ended without a result."""
    UNFINISHED = "not finished"
    """Nothing else is known of it."""


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
class Result:
    """What was decoded, and its scores; what is not there yet is left out."""

    name: str
    """In the tables: the id of a training run, or the row of what is decoded beside the runs."""
    key: str
    """Name of its folders."""
    scored: Path
    """Folder of its scoring."""
    scores: dict[str, Score]
    tuned: Row
    state: State
    why: str = ""
    """It is not finished, in a few words; empty where nothing is known of it."""

    @property
    def scored_sets(self) -> dict[str, Path]:
        """Folders of the scores that count, by set."""
        return {name: self.scored / name for name in self.scores}


@dataclass(frozen=True, kw_only=True)
class RunResult(Result):
    """A training run and its scores."""

    run: Run
    row: str
    """Of the table, to which it belongs with those that have other seeds alone."""
    folder: Path
    """Of its training."""
    summary: Row
    metrics: list[Row]
    """The numbers of the run as a whole (`metrics_file.numbers`)."""


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


def read_result(config: Config, run: Run, unfinished: Collection[str] = ()) -> RunResult:
    """Everything known of a run.

    Scores count that belong to its training: of a run that has none, or one that failed, there are
    none, and none that are older than what they were made from.

    Args:
        config: whose run it is.
        run: the run.
        unfinished: KEY or KEY/SET of what was to be made again and was not, which files do not
            tell.

    Raises:
        UserError: a file is broken.
    """
    base = results_folder(config)
    key = run_key(config, run.id)
    score, folder = base / "score" / key, base / "runs" / key
    decoded = sets(config) if run.decode else ()
    scores = scores_of(base, key, decoded, models=[folder / SUMMARY], unfinished=unfinished)
    summary = read_if_there(folder / SUMMARY)
    unscored = [name for name in decoded if name not in scores]
    state, why = state_of(summary, failed=read_if_there(folder / FAILED), unscored=unscored)
    if not summary or state is State.DIVERGED:  # scores are of a model that is not there any more
        scores = {}
    return RunResult(
        name=run.id,
        run=run,
        row=row_of(config, run.id),
        key=key,
        folder=folder,
        scored=score,
        scores=scores,
        tuned=read_if_there(score / "tuned.json") if scores else {},
        summary=summary,
        metrics=metrics_file.numbers(folder / metrics_file.FILE),
        state=state,
        why=why,
    )


def read_results(config: Config, unfinished: Collection[str] = ()) -> list[RunResult]:
    """All runs of a config, in its order; arguments and errors as those of `read_result`."""
    return [read_result(config, run, unfinished) for run in config.training.members]


def read_if_there(file: Path) -> Row:
    """One JSON object, empty where there is no file; UserError where it is broken."""
    return read_json(file) if file.exists() else {}


def scores_of(
    base: Path,
    key: str,
    names: Collection[str],
    *,
    models: Sequence[Path],
    unfinished: Collection[str],
) -> dict[str, Score]:
    """Those that count of the sets `names`, of what `models` decoded: no former ones."""
    files = {name: base / "score" / key / name / "wer.json" for name in names}
    return {
        name: read_score(file)
        for name, file in files.items()
        if file.exists()
        and not {key, f"{key}/{name}"} & set(unfinished)
        and not _outdated(base, key, name, models)
    }


def _outdated(base: Path, key: str, name: str, models: Sequence[Path]) -> bool:
    """Whether a set's scores are older than what they were made from."""
    score, decode = base / "score" / key, base / "decode" / key
    made_from = [
        *models,
        decode / "dev",  # the weight and penalty are chosen on it
        decode / name,
        base / "lists" / key / f"{name}.jsonl.gz",
        score / "tuned.json",
    ]
    made = max(_made(score / name), (score / name / "wer.json").stat().st_mtime_ns)
    return any(_made(place) > made for place in made_from)


def _made(place: Path) -> int:
    """When Snakemake takes a file or folder for made, in ns; 0 where it is not there."""
    stamp = place / ".snakemake_timestamp"  # of a folder
    file = stamp if stamp.exists() else place
    return file.stat().st_mtime_ns if file.exists() else 0


def state_of(summary: Row, *, failed: Row, unscored: Sequence[str]) -> tuple[State, str]:
    """The state that a run's files tell, and why; `unscored` are the sets without a score."""
    if "diverged" in summary:
        return State.DIVERGED, str(summary["diverged"])
    if not summary and failed:
        return State.FAILED, str(failed.get("why", ""))
    if not summary:
        return State.UNFINISHED, ""
    if unscored:
        return State.UNFINISHED, f"trained, and not scored on {', '.join(unscored)}"
    return State.FINISHED, ""


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
