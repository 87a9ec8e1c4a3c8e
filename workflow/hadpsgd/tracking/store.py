"""One tracking store: finds and begins runs by their keys, reads them, applies events to them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hadpsgd.collecting import uncollected
from hadpsgd.tracking.events import Begin, Event
from hadpsgd.tracking.failures import NotStoredError, explained
from hadpsgd.tracking.run_ids import known_run, remember_run
from hadpsgd.tracking.uri import database_file, first_use, knock, redacted, set_environment
from hadpsgd.tracking.writer import Writer

KEY_TAG = "hadpsgd.key"
PARENT_TAG = "mlflow.parentRunId"
USER_TAG = "mlflow.user"
# MLflow's pages open on runs and curves instead of on traces of language models
_EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}


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
        set_environment()
        with explained(uri), uncollected():
            knock(uri)
            from mlflow import MlflowClient  # seconds: only here

            with first_use(uri, spool):
                file = database_file(uri)
                if file and not file.exists():
                    _create(file)
                self.client = MlflowClient(uri)
                self.client.search_experiments(max_results=1)
        self._writer = Writer(self.client)

    def apply(self, key: str, events: Iterable[Event]) -> None:
        """Write events of the run `key`. Applying the same again changes nothing.

        Raises:
            NotStoredError: the store cannot be reached or refuses an event; those before it are
                written.
        """
        with explained(self.uri):
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
        with explained(self.uri):
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
        with explained(self.uri):
            found = self.client.get_experiment_by_name(experiment)
            return self._find(found.experiment_id, key) if found else None

    def tag(self, run_id: str, values: dict[str, str]) -> None:
        """Set tags of a run that another process began; raises NotStoredError."""
        with explained(self.uri):
            self._writer.tag(run_id, values)

    def history(self, run_id: str, *, metric: str) -> list[tuple[float, float]]:
        """Steps and values of a metric, in order of steps; raises NotStoredError."""
        with explained(self.uri):
            found = self.client.get_metric_history(run_id, metric)
        return sorted((float(point.step), float(point.value)) for point in found)

    def download(self, run_id: str, folder: Path) -> dict[str, str]:
        """Tags of a run; its artifacts `provenance/`, `scored/` and `summary.json` go to a folder.

        Raises:
            NotStoredError: no such run, or no answer.
        """
        from mlflow.artifacts import download_artifacts

        with explained(self.uri):
            run = self.client.get_run(run_id)
            there = {item.path for item in self.client.list_artifacts(run_id)}
            for path in sorted(there & {"provenance", "scored", "summary.json"}):
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
        # one folder, whatever the name: Databricks' begin with /
        folder = re.sub(r"[/\\]|^\.+$", "_", name)
        # MLflow's own default is relative to the folder in which it happens to run
        location = (file.parent / "mlartifacts" / folder).as_uri() if file else None
        try:
            return self.client.create_experiment(name, location, _EXPERIMENT_TAGS)
        except Exception:
            found = self.client.get_experiment_by_name(name)  # another host was faster
            if found is None:
                raise
            return found.experiment_id

    def _apply(self, key: str, event: Event) -> None:
        if isinstance(event, Begin):
            self._begin(key, event)
        else:
            self._writer.write(self.run_id(key), event)

    def _begin(self, key: str, event: Begin) -> None:
        # below its parent, wherever that is: MLflow folds runs of one experiment alone
        parent = self.run_id(event.parent) if event.parent else ""
        if parent:
            experiment = self.client.get_run(parent).info.experiment_id
        else:
            experiment = self.experiment(event.experiment)
        known = known_run(self._spool, key=key, uri=self.uri).get("run_id")
        found = known if known and self._exists(known) else self._find(experiment, key)
        if not found:
            tags = {KEY_TAG: key}
            if parent:
                tags[PARENT_TAG] = parent
            if event.user:
                tags[USER_TAG] = event.user
            run = self.client.create_run(
                experiment, start_time=event.time_ms, tags=tags, run_name=event.name
            )
            found = run.info.run_id
        elif parent and self.client.get_run(found).data.tags.get(PARENT_TAG) != parent:
            self.client.set_tag(found, PARENT_TAG, parent)  # the former was deleted
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
