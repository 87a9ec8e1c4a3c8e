"""Bring the store up to date with a results folder: whatever it lacks is sent, once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from hadpsgd.config import Config, beside_rows, run_key, run_of
from hadpsgd.files import write_text
from hadpsgd.scoring import scored_with
from hadpsgd.tracking import beside_run, identity, scoring_run, training_run
from hadpsgd.tracking.beside import Beside, read_beside
from hadpsgd.tracking.curves import Curves
from hadpsgd.tracking.events import Artifact, Event, Finish, Model, Note, Tags
from hadpsgd.tracking.metrics_file import FILE as METRICS
from hadpsgd.tracking.recorder import Connection, Recorder, upload_others, warn
from hadpsgd.tracking.results import (
    SUMMARY,
    Result,
    RunResult,
    State,
    read_json,
    read_result,
    results_folder,
)
from hadpsgd.tracking.run_ids import known_run
from hadpsgd.tracking.uri import experiment_name, is_on, redacted, spool_folder, tracking_uri

SIGNIFICANCE = "significance.json"
PICTURES = ("curves.png", "seconds.png", "learning_rate.png")
WORD_ERRORS = "wer.md"
TABLES = (WORD_ERRORS, "report.html", "stages.md", SIGNIFICANCE, *PICTURES)


@dataclass(frozen=True, kw_only=True)
class Tracked:
    """Where a training run, or what is decoded beside the runs, is found; `mlflow_run` is empty
    while records wait."""

    run: str
    key: str
    mlflow_run: str
    mlflow_experiment: str


def sync(config: Config, out: Path | None, run: str | None = None) -> list[Tracked]:
    """Send trainings, scorings, the final table and models of a config that the store lacks.

    And what waits for the store of other trainings that have ended. What cannot be sent waits in
    the spool.

    Args:
        config: whose runs they are.
        out: gets the list of runs as JSON.
        run: id or key of a run, or of what is decoded beside the runs, to send that alone, as far
            as it got, without the tables of all.

    Raises:
        UserError: there is no such run, a result cannot be read, or the tracking URI is not one.
    """
    beside = {row for row, key in beside_rows(config).items() if run in (None, row, key)}
    if run is None:
        runs = config.training.members
    else:
        runs = [] if beside else [run_of(config, run, beside_rows(config))]
    connection = Connection(config)
    for result in map(partial(read_result, config), runs) if is_on(config) else ():
        if result.folder.is_dir():
            _sync_run(config, connection, result, tables=run is None)
    if is_on(config) and connection.due():  # not one that has just failed
        upload_others(connection)
    for each in read_beside(config) if beside and is_on(config) else ():
        if each.name in beside:
            _sync_beside(config, connection, each, tables=run is None)
    wanted = {*beside, *(each.id for each in runs)}
    tracked = [each for each in tracked_runs(config) if each.run in wanted]
    if out:
        content = {"uri": redacted(connection.uri), "runs": [asdict(run) for run in tracked]}
        write_text(out, json.dumps(content, indent=2) + "\n")
    return tracked


def tracked_runs(config: Config) -> list[Tracked]:
    """Runs of a config, and what is decoded beside them, as the spool knows them; does not ask
    the store."""
    found = []
    base = results_folder(config)
    members = config.training.members
    folders = {each.id: base / "runs" / run_key(config, each.id) for each in members}
    folders |= {row: base / "score" / key for row, key in beside_rows(config).items()}
    for name, folder in folders.items():
        who = identity.read(folder)
        if who is None:
            continue
        place = known_run(spool_folder(config), key=who.key, uri=tracking_uri(config))
        found.append(
            Tracked(
                run=name,
                key=who.key,
                mlflow_run=place.get("run_id", ""),
                mlflow_experiment=place.get("experiment_id", ""),
            )
        )
    return found


def _sync_run(config: Config, connection: Connection, result: RunResult, *, tables: bool) -> None:
    who = identity.read_or_create(result.folder)
    training = Recorder(connection, who.key)
    described = partial(training_run.description, config, result.run.id)
    told = _tables(config, result, described) if tables else ()
    events = chain(_training(config, result, who), told)
    if training.send(events) and result.summary:
        training.spool.take_back_last_word()
    if (
        result.scores and result.state is State.FINISHED
    ):  # its scores name the scoring: not while some are missing
        scoring = Recorder(connection, scoring_run.key(who.key, result))
        scoring.send(scoring_run.events(config, who.key, result))


def _sync_beside(config: Config, connection: Connection, result: Beside, *, tables: bool) -> None:
    """Once all its sets are scored: before, there is nothing that it could say. Later its scores
    may be none any more."""
    described = partial(beside_run.description, config, result)
    if result.state is State.FINISHED:
        who = identity.read_or_create(result.scored)
        recorded = beside_run.events(config, result, who)
    elif known := identity.read(result.scored):
        who, recorded = known, beside_run.without_scores(config, result, known)
    else:
        return
    told = _tables(config, result, described) if tables else ()
    Recorder(connection, who.key).send(chain(recorded, told))


def _training(config: Config, result: RunResult, who: identity.Identity) -> Iterator[Event]:
    folder = result.folder
    training_run.write_provenance(config, folder)
    yield from training_run.begin(config, result.run.id, folder, who)
    yield from Curves(folder / METRICS, who, config.tracking.every_seconds).new(ended=True)
    for file in (folder / "train.log", folder / METRICS, folder / SUMMARY):
        if file.is_file():
            yield Artifact(path=str(file.absolute()))
    for scored in (scored_with.file_of(result.scored), result.scored / "tuned.json"):
        if scored and scored.is_file():
            yield Artifact(path=str(scored.absolute()), folder="scored")
    if result.summary:
        yield training_run.final_model(result.summary, _ended_ms(result))
    if result.scores:
        yield from scoring_run.word_errors(config, result, _scored_ms(result))
    yield Tags(values={training_run.STATUS: result.state, training_run.WHY: result.why})
    if "arithmetic" in result.summary:
        yield Tags(values={"arithmetic": str(result.summary["arithmetic"])})
    diverged = result.state is State.DIVERGED
    if result.summary:
        yield Finish(status="FAILED" if diverged else "FINISHED", time_ms=_ended_ms(result))
    if config.tracking.register_model and (folder / "final.pt").is_file() and not diverged:
        if result.state is not State.FINISHED:
            warn(f"{result.key}: its model is logged once all its sets are scored")
            return
        name = f"{experiment_name(config)}-{result.run.id}"
        final = (folder / "final.pt").absolute()
        settings = config.model_dump(mode="json", include={"decoding", "scoring"})
        yield Model(path=str(final), name=name, run=str(final.parent), settings=settings)


def _tables(config: Config, result: Result, described: Callable[..., str]) -> Iterator[Event]:
    """What is known once all runs have ended: the tables, and the run's difference from others."""
    for name in TABLES:
        table = results_folder(config) / name
        if table.is_file():
            yield Artifact(path=str(table.absolute()), folder="report")
    if (table := results_folder(config) / WORD_ERRORS).is_file():
        text = table.read_text("utf-8")
        yield Note(text=described(table=text))
    tests = results_folder(config) / SIGNIFICANCE
    if result.scores and tests.is_file():
        yield scoring_run.tested(read_json(tests), result.name)


def _ended_ms(result: RunResult) -> int:
    """When its training left its summary."""
    return int((result.folder / SUMMARY).stat().st_mtime * 1000)


def _scored_ms(result: RunResult) -> int:
    """When the last of its sets was scored."""
    times = ((result.scored / name / "wer.json").stat().st_mtime for name in result.scores)
    return int(max(times) * 1000)
