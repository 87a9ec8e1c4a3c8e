"""Rows of metrics and samples of the machine as points of an MLflow run.

A run has as many curves with 128 learners as with two: of what differs from learner to learner
the mean, the least (`<name>_min`) and the greatest (`<name>_max`). Each learner's own numbers stay
in the files.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, TypeGuard

from hadpsgd.tracking import system
from hadpsgd.tracking.events import Event, Metrics, Point
from hadpsgd.tracking.identity import Identity
from hadpsgd.tracking.metrics_file import GrowingFile, Row

CLOCKS = ("seconds", "virtual_seconds")
"""Of a row of updates, what is drawn against epochs alone."""
BY_EPOCH = ("loss", *CLOCKS)
"""Of a row of updates, what is drawn against epochs."""
AT_ONCE = 20_000
"""Points of an event."""
_AXES = ("step", "time", "epoch")
_OF_LEARNER = re.compile(r"learner_\d+/(.+)")
_IN_FILE_ALONE = re.compile(
    r"learner_\d+/.*|lag_behind_\d+"  # one curve a learner
    r"|learner_frames_per_second"  # the mean: frames_per_second over the learners
    r"|share_compute"  # what the other shares leave
    r"|megabytes_sent_per_step"  # follows from the strategy and the model
)


def points(rows: Iterable[Row]) -> Iterator[Point]:
    """Rows of metrics.jsonl against updates; those of the end of an epoch against epochs.

    A row without a loss at a whole epoch tells of that epoch (held-out scores, distances): its
    numbers are `epoch/<name>` alone.
    """
    for row in rows:
        epoch = _whole_epoch(row)
        shown = {**_shown(row), **_over_learners(row)}
        if not epoch or "loss" in row:
            by_update = {name: value for name, value in shown.items() if name not in CLOCKS}
            yield from _at(row, row.get("step"), by_update)
            shown = {name: shown[name] for name in BY_EPOCH if name in shown}
        if epoch:
            named = {f"epoch/{name}": value for name, value in shown.items()}
            yield from _at(row, epoch, named)


class Curves:
    """The curves of a training run that is under way: its own and those of its machines."""

    def __init__(self, metrics: Path, identity: Identity, every_seconds: float) -> None:
        """`metrics` is the metrics.jsonl that training appends to; samples lie beside it.

        `every_seconds` is the time between two samples.
        """
        self._metrics = GrowingFile(metrics)
        self._samples = Samples(
            metrics.parent, created=identity.created, every_seconds=every_seconds
        )

    def new(self, *, ended: bool = False) -> Iterator[Event]:
        """Events for what was written since the last call; `ended`: nobody writes any more."""
        for found in (points(self._metrics.rows()), self._samples.points(ended=ended)):
            while told := list(islice(found, AT_ONCE)):
                yield Metrics(points=told)


class Samples:
    """What all ranks have sampled of their machines, put together in intervals of time.

    A host counts as often as it has ranks.
    """

    def __init__(self, folder: Path, *, created: float, every_seconds: float) -> None:
        self._folder = folder
        self._created = created
        self._width = max(1, math.ceil(every_seconds))
        self._files: dict[Path, GrowingFile] = {}
        self._waiting: dict[int, dict[str, Row]] = defaultdict(dict)
        """Interval -> rank's file -> its last sample in it."""

    def points(self, *, ended: bool) -> Iterator[Point]:
        """Of the intervals that have passed; `ended`: of the last one, too.

        Steps are seconds since the run began: unique over resumes, as a step must be.
        """
        files = map(self._rows, sorted(self._folder.glob(system.PATTERN)))
        # in the order of time: days of 128 ranks are not held together
        for name, row in heapq.merge(*files, key=lambda found: found[1]["time"]):
            interval = math.floor((row["time"] - self._created) / self._width)
            self._waiting[interval][name] = row
            for passed in sorted(other for other in self._waiting if other < interval):
                yield from self._points(passed)
        for interval in sorted(self._waiting) if ended else ():
            yield from self._points(interval)

    def _rows(self, path: Path) -> Iterator[tuple[str, Row]]:
        """A rank's new samples that have a time."""
        for row in self._files.setdefault(path, GrowingFile(path)).rows():
            if _number(row.get("time")):
                yield path.name, row

    def _points(self, interval: int) -> Iterator[Point]:
        rows = list(self._waiting.pop(interval).values())
        values: dict[str, float] = {}
        for name in (system.MEMORY, *system.AS_MLFLOW):
            told = [row[name] for row in rows if _number(row.get(name))]
            found = _spread(f"system/{name}", told) if told else {}
            if name != system.MEMORY:  # the mean alone
                found = {mean: value for mean, value in found.items() if mean == f"system/{name}"}
            values |= found
        moment = {"time": max(row["time"] for row in rows)}
        yield from _at(moment, interval * self._width, values)


def _whole_epoch(row: Row) -> int:
    """The epoch whose end a row tells of; 0 for other rows."""
    epoch = row.get("epoch")
    if not _number(epoch) or not math.isclose(epoch, round(epoch), abs_tol=1e-9):
        return 0
    return round(epoch)


def _shown(row: Row) -> dict[str, Any]:
    return {n: v for n, v in row.items() if n not in _AXES and not _IN_FILE_ALONE.fullmatch(n)}


def _over_learners(row: Row) -> dict[str, float]:
    """Mean, least and greatest of what each learner told; a diverged one's NaN makes all NaN."""
    told: dict[str, list[float]] = defaultdict(list)
    for name, value in row.items():
        if (match := _OF_LEARNER.fullmatch(name)) and _number(value):
            told[match[1]].append(value)
    found = (_spread(name, values) for name, values in told.items())
    return {n: v for values in found for n, v in values.items() if not _IN_FILE_ALONE.fullmatch(n)}


def _spread(name: str, values: list[float]) -> dict[str, float]:
    """The mean first; least and greatest only where there are several."""
    mean = {name: sum(values) / len(values)}
    if len(values) == 1:
        return mean
    if any(map(math.isnan, values)):
        return dict.fromkeys([name, f"{name}_min", f"{name}_max"], math.nan)
    return mean | {f"{name}_min": min(values), f"{name}_max": max(values)}


def _at(row: Row, step: Any, values: Mapping[str, Any]) -> Iterator[Point]:
    """A point for every number; none for a row without a step or a time."""
    seconds = row.get("time")
    if not _number(step) or not _number(seconds):
        return
    for name, value in values.items():
        if _number(value):
            moment = int(seconds * 1000)
            yield Point(name=name, value=float(value), step=int(step), time_ms=moment)


def _number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
