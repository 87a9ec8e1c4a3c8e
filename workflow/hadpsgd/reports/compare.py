"""Runs side by side: settings that differ, results, and the link to MLflow's own comparison."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

from hadpsgd.config import Config, check
from hadpsgd.ending import Former
from hadpsgd.errors import UserError
from hadpsgd.reports import differences, rows, significance, table
from hadpsgd.tracking import identity, training_run
from hadpsgd.tracking.beside import Beside, read_beside
from hadpsgd.tracking.failures import NotStoredError
from hadpsgd.tracking.results import Result, RunResult, read_results, results_folder
from hadpsgd.tracking.run_ids import known_run
from hadpsgd.tracking.scoring_run import WER
from hadpsgd.tracking.training_run import FINAL, STATUS
from hadpsgd.tracking.uri import redacted, spool_folder, tracking_uri

LOCAL_SERVER = "http://127.0.0.1:5000"
_SUMMARY = (
    *("heldout_loss", "heldout_accuracy", "steps", "seconds", "virtual_seconds"),
    "consensus_distance",
)


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One column: `mlflow_run` is empty where the run is not in the store."""

    label: str
    key: str
    """Name of its folders; empty for a run of the store."""
    settings: dict[str, str]
    metrics: dict[str, str]
    mlflow_run: str = ""
    mlflow_experiment: str = ""
    scores: Mapping[str, significance.Scored] = field(default_factory=dict)
    """Folders of scores by run and set, for a run or a row of a results folder."""
    folded: tuple[Compared, ...] = ()
    """The runs of a row that has seeds."""


def find(name: str, config: Config) -> list[Compared]:
    """The runs that a name stands for.

    Args:
        name: a run of the config, or a row of several seeds, the key of one of former settings,
            `CONFIG/RUN` or `CONFIG/` for all of another config's rows in the same results folder,
            or the id of an MLflow run.
        config: names the results folder and the store.

    Raises:
        UserError: there is no such run.
    """
    config_name, _, run_id = name.rpartition("/")
    if not config_name and len(name) == 32 and set(name) <= set("0123456789abcdef"):
        return [from_store(name, config)]
    owner = _config_named(config_name, config) if config_name else config
    rows = from_results(owner, config.name)
    found = [*rows, *(run for row in rows for run in row.folded)]
    chosen = [run for run in found if run_id in (run.label.rpartition("/")[2], run.key)]
    chosen = chosen if run_id else rows
    own = results_folder(owner) / "runs" / run_id / "config.yaml"
    if not chosen and own.is_file():  # of settings that the config does not have any more
        former = each_run(from_results(_config_in(own), config.name))
        chosen = [replace(run, label=run.key) for run in former if run.key == run_id]
    if not chosen:
        names = ", ".join(run.label for run in found)
        raise UserError(f"no run '{name}'", fix=f"There are: {names}; or give an MLflow run id")
    return chosen


def from_results(config: Config, here: str) -> list[Compared]:
    """The rows of a results folder, finished or not; labels name the config if it is not `here`."""
    prefix = "" if config.name == here else f"{config.name}/"
    unfinished = Former.of(config, results_folder(config)).unfinished
    results = {result.run.id: result for result in read_results(config, unfinished)}
    columns = []
    for row, runs in config.training.rows.items():
        members = [results[run.id] for run in runs]
        folded = [_column(config, result, prefix) for result in members]
        alone = [run.id for run in runs] == [row]
        columns += folded if alone else [_mean(prefix + row, members, folded)]
    beside = read_beside(config, unfinished)
    return columns + [_beside(config, result, prefix) for result in beside]


def each_run(rows: Sequence[Compared]) -> Iterator[Compared]:
    """Those that are folded under rows, and those that are rows of one."""
    for row in rows:
        yield from row.folded or (row,)


def _beside(config: Config, result: Beside, prefix: str) -> Compared:
    """What is decoded beside the runs, which has no settings of a training to compare."""
    known = _known(config, result.scored)
    of_runs = {"runs": ", ".join(result.members)} if result.runs else {}
    if result.runs and result.gmm:
        of_runs["gmm_share"] = str(config.decoding.gmm_share)
    return Compared(
        label=prefix + result.name,
        key=result.key,
        settings={},
        metrics=of_runs | _told(result),
        mlflow_run=known.get("run_id", ""),
        mlflow_experiment=known.get("experiment_id", ""),
        scores={prefix + result.name: result.scored_sets},
    )


def _known(config: Config, folder: Path) -> Mapping[str, str]:
    """Where the store has what has its identity in that folder."""
    who = identity.read(folder)
    return known_run(spool_folder(config), key=who.key, uri=tracking_uri(config)) if who else {}


def _told(result: Result) -> dict[str, str]:
    """How it ended, and its word error rates."""
    metrics = {STATUS: f"{result.state}: {result.why}" if result.why else str(result.state)}
    return metrics | {f"{WER} {name}": table.rate(score) for name, score in result.scores.items()}


def _column(config: Config, result: RunResult, prefix: str) -> Compared:
    known = _known(config, result.folder)
    metrics = _told(result) | {
        name: rows.number(result.summary[name]) for name in _SUMMARY if name in result.summary
    }
    return Compared(
        label=prefix + result.run.id,
        key=result.key,
        settings=training_run.parameters(config, result.run.id),
        metrics=metrics,
        mlflow_run=known.get("run_id", ""),
        mlflow_experiment=known.get("experiment_id", ""),
        scores={prefix + result.run.id: result.scored_sets},
    )


def _mean(label: str, results: Sequence[RunResult], columns: Sequence[Compared]) -> Compared:
    """A row of several seeds: means with their intervals; settings that vary are all named."""
    values = {
        f"{WER} {name}": [r.scores[name].wer for r in results if name in r.scores]
        for name in dict.fromkeys(name for result in results for name in result.scores)
    }
    values |= {
        name: found
        for name in _SUMMARY
        if (found := [float(r.summary[name]) for r in results if name in r.summary])
    }
    states = dict.fromkeys(column.metrics[STATUS] for column in columns)
    means = {name: _mean_of(name, found) for name, found in values.items()}
    settings = {
        name: ", ".join(dict.fromkeys(column.settings[name] for column in columns))
        for name in columns[0].settings
    }
    return Compared(
        label=label,
        key="",
        settings=settings,
        metrics={STATUS: ", ".join(states)} | means,
        scores={run: sets for column in columns for run, sets in column.scores.items()},
        folded=tuple(columns),
    )


def _mean_of(name: str, values: Sequence[float]) -> str:
    """Word error rates in percent; what all runs have alike (steps, say) stands alone."""
    if name.startswith(WER):
        return rows.mean(values, "%.2f %%")
    return rows.number(values[0]) if len(set(values)) == 1 else rows.mean(values, "%.4g")


def from_store(run_id: str, config: Config) -> Compared:
    """A run by its id in the store."""
    from hadpsgd.tracking.store import Store

    try:
        run = Store(tracking_uri(config), spool_folder(config)).read(run_id)
    except NotStoredError as error:
        raise UserError(str(error)) from None
    told = {STATUS: run.tags[STATUS]} if STATUS in run.tags else {}
    values = {
        metric.replace("/", " "): value
        for metric, value in run.metrics.items()
        if metric.startswith(f"{WER}/")
    }
    for name in _SUMMARY:
        found = (run.metrics.get(stored) for stored in (f"{FINAL}/{name}", f"epoch/{name}", name))
        if (value := next((each for each in found if each is not None), None)) is not None:
            values[name] = value
    shown = told | {metric: rows.number(value) for metric, value in values.items()}
    return Compared(
        label=f"{run.name} {run_id[:6]}",
        key="",
        settings=run.params,
        metrics=shown,
        mlflow_run=run_id,
        mlflow_experiment=run.experiment,
    )


def page(runs: Sequence[Compared]) -> str:
    """Both tables as text."""
    labels = _distinct([run.label for run in runs])
    settings = {
        label: run.settings for label, run in zip(labels, runs, strict=True) if run.settings
    }
    names = list(dict.fromkeys(name for run in runs for name in run.metrics))
    metrics = {name: [run.metrics.get(name, rows.MISSING) for run in runs] for name in names}
    differing = differences.table(list(settings), differences.differing(settings), "setting")
    settings_text = differing.markdown() if differing.rows else "No setting differs.\n"
    results_text = differences.table(labels, metrics, "result").markdown()
    return f"{settings_text}\n{results_text}\n{_tested(labels, runs)}"


def _tested(labels: Sequence[str], runs: Sequence[Compared]) -> str:
    """Differences with their significance, as far as the scored sentences are here."""
    folders = {label: run.scores for label, run in zip(labels, runs, strict=True) if run.scores}
    names = {name for row in folders.values() for sets in row.values() for name in sets}
    try:
        tests = significance.between(folders, sorted(names - {"dev"}))
    except UserError as error:
        return f"Differences are not tested: {error}.\n"
    return significance.text(list(folders), tests)


def link(runs: Sequence[Compared], uri: str) -> str:
    """Address of MLflow's comparison of the runs; empty where fewer than two are in the store."""
    stored = [run for run in each_run(runs) if run.mlflow_run]
    ids = [run.mlflow_run for run in stored]
    if len(ids) < 2:
        return ""
    experiments = list(dict.fromkeys(run.mlflow_experiment for run in stored))
    server = uri.rstrip("/") if uri.startswith("http") else LOCAL_SERVER
    parts = f"runs={quote(json.dumps(ids))}&experiments={quote(json.dumps(experiments))}"
    return f"{server}/#/compare-runs?{parts}"


def server_command(uri: str) -> str:
    """The command that serves a database to browsers; empty for a server.

    By itself MLflow starts four workers, and ends and starts again those that are not there within
    five seconds: on a busy machine, for ever.
    """
    if uri.startswith(("http", "databricks")):
        return ""
    where = "--host 127.0.0.1 --port 5000 --workers 1"
    return f"mlflow server {where} --backend-store-uri {redacted(uri)}"


def _config_named(name: str, config: Config) -> Config:
    file = Path(config.results) / name / "config.yaml"
    if not file.is_file():
        raise UserError(f"no results of a config '{name}'", where=file)
    return _config_in(file)


def _config_in(file: Path) -> Config:
    import yaml

    return check(yaml.safe_load(file.read_text(encoding="utf-8")), file)


def _distinct(labels: list[str]) -> list[str]:
    return [
        f"{label} ({labels[:i].count(label) + 1})" if labels.count(label) > 1 else label
        for i, label in enumerate(labels)
    ]
