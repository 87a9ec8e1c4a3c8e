"""MLflow behind the events: applies them to a run, each exactly once in effect."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from hadpsgd.errors import UserError
from hadpsgd.files import write_text
from hadpsgd.tracking import described
from hadpsgd.tracking.events import (
    Artifact,
    Begin,
    Event,
    Finish,
    Inputs,
    Metrics,
    Model,
    Note,
    Params,
    Point,
    Tags,
)
from hadpsgd.tracking.models.registry import register
from hadpsgd.tracking.uri import database_file, first_use, knock, redacted, set_environment

KEY_TAG = "hadpsgd.key"
PARENT_TAG = "mlflow.parentRunId"
USER_TAG = "mlflow.user"
# MLflow's pages open on runs and curves instead of on traces of language models
_EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}
_POINTS = 1000  # MLflow's limit of metrics a call
_PARAMS = 100  # and of parameters or tags
_VALUE = 5000  # characters of a parameter or tag (limits 6000 and 8000)
_REFUSALS = (400, 403, 404, 405, 409)  # that the same request meets again; not a lost connection
_T = TypeVar("_T")


class NotStoredError(Exception):
    """The store could not be reached or refused a record; one line says why."""


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """A run as the store has it: parameters, latest metrics, tags."""

    name: str
    experiment: str
    params: dict[str, str]
    metrics: dict[str, float]
    tags: dict[str, str]


class Store:
    """One tracking store. Reads and writes go through MLflow's client."""

    def __init__(self, uri: str, spool: Path) -> None:
        """Connect; tables are created on first use, by one process at a time.

        Raises:
            NotStoredError: the store cannot be reached.
        """
        self.uri = uri
        self._spool = spool
        self._experiments: dict[str, str] = {}
        self._runs: dict[str, str] = {}
        self._steps: dict[tuple[str, str], set[int]] = {}
        set_environment()
        with _explained(uri):
            knock(uri)
            from mlflow import MlflowClient  # seconds: only here

            with first_use(uri, spool):
                file = database_file(uri)
                if file and not file.exists():
                    _create(file)
                self.client = MlflowClient(uri)
                self.client.search_experiments(max_results=1)

    def apply(self, key: str, events: Iterable[Event]) -> None:
        """Write events of the run `key`. Applying the same again changes nothing.

        Raises:
            NotStoredError: the store cannot be reached or refuses an event; those before it are
                written.
        """
        with _explained(self.uri):
            for event in events:
                self._apply(key, event)

    def run_id(self, key: str) -> str:
        """MLflow's id of a run; raises NotStoredError where it has not begun."""
        found = self._runs.get(key) or known_run(self._spool, key=key, uri=self.uri).get("run_id")
        if not found:
            raise NotStoredError(f"run {key} is not in {redacted(self.uri)}")
        self._runs[key] = found
        return found

    def read(self, run_id: str) -> StoredRun:
        """What is known of a run; raises NotStoredError."""
        with _explained(self.uri):
            run = self.client.get_run(run_id)
        info, data = run.info, run.data
        return StoredRun(
            name=info.run_name,
            experiment=info.experiment_id,
            params=data.params,
            metrics=data.metrics,
            tags=data.tags,
        )

    def find(self, key: str, *, experiment: str) -> str | None:
        """MLflow's id of the run with this key; None where it has none; raises NotStoredError."""
        with _explained(self.uri):
            found = self.client.get_experiment_by_name(experiment)
            return self._find(found.experiment_id, key) if found else None

    def tag(self, run_id: str, values: dict[str, str]) -> None:
        """Set tags of a run that another process began; raises NotStoredError."""
        with _explained(self.uri):
            self._tags(run_id, values)

    def history(self, run_id: str, *, metric: str) -> list[tuple[float, float]]:
        """Steps and values of a metric, in order of steps; raises NotStoredError."""
        with _explained(self.uri):
            found = self.client.get_metric_history(run_id, metric)
        return sorted((float(point.step), float(point.value)) for point in found)

    def download(self, run_id: str, folder: Path) -> dict[str, str]:
        """Tags of a run; its artifacts `provenance/` and `summary.json` go to a folder.

        Raises:
            NotStoredError: no such run, or no answer.
        """
        from mlflow.artifacts import download_artifacts

        with _explained(self.uri):
            run = self.client.get_run(run_id)
            there = {item.path for item in self.client.list_artifacts(run_id)}
            for path in sorted(there & {"provenance", "summary.json"}):
                download_artifacts(
                    run_id=run_id, artifact_path=path, dst_path=str(folder), tracking_uri=self.uri
                )
        return run.data.tags

    def experiment(self, name: str) -> str:
        """Id of an experiment, created where it is missing."""
        if name not in self._experiments:
            with first_use(self.uri, self._spool):
                found = self.client.get_experiment_by_name(name)
                if found and found.lifecycle_stage == "deleted":
                    self.client.restore_experiment(found.experiment_id)
                self._experiments[name] = (
                    found.experiment_id if found else self._create_experiment(name)
                )
        return self._experiments[name]

    def _create_experiment(self, name: str) -> str:
        file = database_file(self.uri)
        # MLflow's own default is relative to the folder in which it happens to run
        location = (file.parent / "mlartifacts" / name).as_uri() if file else None
        try:
            return self.client.create_experiment(name, location, _EXPERIMENT_TAGS)
        except Exception:
            found = self.client.get_experiment_by_name(name)  # another host was faster
            if found is None:
                raise
            return found.experiment_id

    def _apply(self, key: str, event: Event) -> None:
        match event:
            case Begin():
                self._begin(key, event)
            case Params():
                self._params(self.run_id(key), event.values)
            case Tags():
                self._tags(self.run_id(key), event.values)
            case Note():
                described.write_note(self.client, self.run_id(key), event)
            case Inputs():
                described.write_inputs(self.client, self.run_id(key), event)
            case Metrics():
                self._metrics(self.run_id(key), event)
            case Artifact():
                self._artifact(self.run_id(key), event)
            case Model():
                self._model(self.run_id(key), event)
            case Finish():
                ended = None if event.status == "RUNNING" else event.time_ms
                self.client.set_terminated(self.run_id(key), event.status, ended)

    def _begin(self, key: str, event: Begin) -> None:
        experiment = self.experiment(event.experiment)
        known = known_run(self._spool, key=key, uri=self.uri).get("run_id")
        found = known if known and self._exists(known) else self._find(experiment, key)
        if not found:
            tags = {KEY_TAG: key}
            if event.parent:
                tags[PARENT_TAG] = self.run_id(event.parent)
            if event.user:
                tags[USER_TAG] = event.user
            run = self.client.create_run(
                experiment, start_time=event.time_ms, tags=tags, run_name=event.name
            )
            found = run.info.run_id
        self._runs[key] = found
        remember_run(self._spool, key=key, uri=self.uri, experiment=experiment, run_id=found)

    def _exists(self, run_id: str) -> bool:
        from mlflow.exceptions import MlflowException

        try:
            return self.client.get_run(run_id).info.lifecycle_stage == "active"
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return False
            raise

    def _find(self, experiment: str, key: str) -> str | None:
        runs = self.client.search_runs([experiment], f"tags.`{KEY_TAG}` = '{key}'", max_results=1)
        return runs[0].info.run_id if runs else None

    def _params(self, run_id: str, values: dict[str, str]) -> None:
        from mlflow.entities import Param

        present = self.client.get_run(run_id).data.params
        values = {name: value[:_VALUE] for name, value in values.items()}
        new = [Param(name, value) for name, value in values.items() if name not in present]
        for batch in batches(new, _PARAMS):
            self.client.log_batch(run_id, params=batch)
        changed = {n: v for n, v in values.items() if present.get(n, v) != v}
        self._tags(run_id, {f"changed.{name}": value for name, value in changed.items()})

    def _tags(self, run_id: str, values: dict[str, str]) -> None:
        from mlflow.entities import RunTag

        tags = [RunTag(name, value[:_VALUE]) for name, value in values.items()]
        for batch in batches(tags, _PARAMS):
            self.client.log_batch(run_id, tags=batch)

    def _metrics(self, run_id: str, event: Metrics) -> None:
        from mlflow.entities import Metric

        points = event.points if event.replace else self._unwritten(run_id, event.points)
        rows = [Metric(p.name, p.value, p.time_ms, p.step) for p in points]
        for batch in batches(rows, _POINTS):
            self.client.log_batch(run_id, metrics=batch)
        if not event.replace:
            for point in points:
                self._steps[run_id, point.name].add(point.step)

    def _unwritten(self, run_id: str, points: list[Point]) -> list[Point]:
        """Points of steps that their curve does not have; the first of a step counts."""
        fresh: dict[tuple[str, int], Point] = {}
        for point in points:
            known = self._steps.get((run_id, point.name))
            if known is None:
                history = self.client.get_metric_history(run_id, point.name)
                known = self._steps[run_id, point.name] = {metric.step for metric in history}
            if point.step not in known:
                fresh.setdefault((point.name, point.step), point)
        return list(fresh.values())

    def _artifact(self, run_id: str, event: Artifact) -> None:
        path = Path(event.path)
        if not path.exists():  # nothing can bring it back: the other records go on
            print(f"hadpsgd track: {path}: artifact is missing, left out", file=sys.stderr)
            return
        self.client.log_artifact(run_id, str(path), event.folder or None)

    def _model(self, run_id: str, event: Model) -> None:
        from mlflow.exceptions import MlflowException

        path = Path(event.path)
        if not path.is_file():  # as of an artifact
            print(f"hadpsgd track: {path}: model is missing, left out", file=sys.stderr)
            return
        try:
            register(self.client, run_id, path, event.name, Path(event.run), event.settings)
        except MlflowException as error:
            if error.get_http_status_code() not in _REFUSALS:
                raise
            what = f"the model is not registered ({_one_line(error)})"
            print(f"hadpsgd track: {event.name}: {what}", file=sys.stderr)


def batches(items: Iterable[_T], size: int) -> Iterator[list[_T]]:
    """Consecutive lists of at most `size` items."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def known_run(spool: Path, *, key: str, uri: str) -> dict[str, str]:
    """Where a run was written in this store: `run_id`, `experiment_id`; empty if unknown."""
    try:
        runs: dict[str, Any] = json.loads((spool / key / "run.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return runs.get(redacted(uri), {})


def remember_run(spool: Path, *, key: str, uri: str, experiment: str, run_id: str) -> None:
    """Keep a run's id in the spool, so that reports need not ask the store."""
    if known_run(spool, key=key, uri=uri).get("run_id") == run_id:
        return
    file = spool / key / "run.json"
    runs = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    runs[redacted(uri)] = {"experiment_id": experiment, "run_id": run_id}
    write_text(file, json.dumps(runs, indent=2) + "\n")


def _create(file: Path) -> None:
    """A new sqlite file with all tables; it is there as a whole or not at all.

    MLflow makes the tables in dozens of steps, and never opens a file again in which a killed
    process left some of them.
    """
    from mlflow import MlflowClient

    new = file.with_name(f".{file.name}.new")
    for left in file.parent.glob(f"{new.name}*"):  # and its journal
        left.unlink()
    MlflowClient(f"sqlite:///{new}").search_experiments(max_results=1)
    new.replace(file)


@contextmanager
def _explained(uri: str) -> Iterator[None]:
    """Turn every failure of MLflow's client into NotStoredError with one line."""
    try:
        yield
    except (NotStoredError, UserError):
        raise
    except Exception as error:  # MLflow, its database drivers and requests raise dozens of types
        raise NotStoredError(f"{redacted(uri)}: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"{error}: install this database's driver"
    text = " ".join(str(error).split()) or type(error).__name__
    for marker in ("Max retries exceeded", "Failed to establish"):
        if marker in text:
            return "no server answers there"
    return text[:300]
