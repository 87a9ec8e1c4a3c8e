"""MLflow behind the events: applies them to runs, each exactly once in effect."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from hadpsgd.tracking import described
from hadpsgd.tracking.events import (
    Artifact,
    Finish,
    Inputs,
    Metrics,
    Model,
    Note,
    Params,
    Point,
    Tags,
)
from hadpsgd.tracking.failures import one_line
from hadpsgd.tracking.models.registry import register

_POINTS = 1000  # MLflow's limit of metrics a call
_PARAMS = 100  # and of parameters or tags
_VALUE = 5000  # characters of a parameter or tag (limits 6000 and 8000)
_REFUSALS = (400, 403, 404, 405, 409)  # that the same request meets again; not a lost connection
_T = TypeVar("_T")
_Told = Params | Tags | Note | Inputs | Metrics | Artifact | Model | Finish
"""All events but the one that begins a run."""


class Writer:
    """Writes to runs by their ids in one store. Raises whatever MLflow's client raises."""

    def __init__(self, client: Any) -> None:
        """`client` is MLflow's, of the store."""
        self._client = client
        self._steps: dict[tuple[str, str], set[int]] = {}

    def write(self, run_id: str, event: _Told) -> None:
        """One event. The same again changes nothing."""
        match event:
            case Params():
                self._params(run_id, event.values)
            case Tags():
                self.tag(run_id, event.values)
            case Note():
                described.write_note(self._client, run_id, event)
            case Inputs():
                described.write_inputs(self._client, run_id, event)
            case Metrics():
                self._metrics(run_id, event)
            case Artifact():
                self._artifact(run_id, event)
            case Model():
                self._model(run_id, event)
            case Finish():
                ended = None if event.status == "RUNNING" else event.time_ms
                self._client.set_terminated(run_id, event.status, ended)

    def tag(self, run_id: str, values: dict[str, str]) -> None:
        """Set tags; the last value counts."""
        from mlflow.entities import RunTag

        tags = [RunTag(name, value[:_VALUE]) for name, value in values.items()]
        for batch in _batches(tags, _PARAMS):
            self._client.log_batch(run_id, tags=batch)

    def _params(self, run_id: str, values: dict[str, str]) -> None:
        from mlflow.entities import Param

        present = self._client.get_run(run_id).data.params
        values = {name: value[:_VALUE] for name, value in values.items()}
        new = [Param(name, value) for name, value in values.items() if name not in present]
        for batch in _batches(new, _PARAMS):
            self._client.log_batch(run_id, params=batch)
        changed = {n: v for n, v in values.items() if present.get(n, v) != v}
        self.tag(run_id, {f"changed.{name}": value for name, value in changed.items()})

    def _metrics(self, run_id: str, event: Metrics) -> None:
        from mlflow.entities import Metric

        points = event.points if event.replace else self._unwritten(run_id, event.points)
        rows = [Metric(p.name, p.value, p.time_ms, p.step) for p in points]
        for batch in _batches(rows, _POINTS):
            self._client.log_batch(run_id, metrics=batch)
        if not event.replace:
            for point in points:
                self._steps[run_id, point.name].add(point.step)

    def _unwritten(self, run_id: str, points: list[Point]) -> list[Point]:
        """Points of steps that their curve does not have; the first of a step counts."""
        fresh: dict[tuple[str, int], Point] = {}
        for point in points:
            known = self._steps.get((run_id, point.name))
            if known is None:
                history = self._client.get_metric_history(run_id, point.name)
                known = self._steps[run_id, point.name] = {metric.step for metric in history}
            if point.step not in known:
                fresh.setdefault((point.name, point.step), point)
        return list(fresh.values())

    def _artifact(self, run_id: str, event: Artifact) -> None:
        path = Path(event.path)
        if not path.exists():  # nothing can bring it back: the other records go on
            print(f"hadpsgd track: {path}: artifact is missing, left out", file=sys.stderr)
            return
        self._client.log_artifact(run_id, str(path), event.folder or None)

    def _model(self, run_id: str, event: Model) -> None:
        from mlflow.exceptions import MlflowException

        path = Path(event.path)
        if not path.is_file():  # as of an artifact
            print(f"hadpsgd track: {path}: model is missing, left out", file=sys.stderr)
            return
        try:
            register(self._client, run_id, path, event.name, Path(event.run), event.settings)
        except MlflowException as error:
            if error.get_http_status_code() not in _REFUSALS:
                raise
            what = f"the model is not registered ({one_line(error)})"
            print(f"hadpsgd track: {event.name}: {what}", file=sys.stderr)


def _batches(items: Iterable[_T], size: int) -> Iterator[list[_T]]:
    """Consecutive lists of at most `size` items."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
