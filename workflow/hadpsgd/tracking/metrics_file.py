"""metrics.jsonl, the record of training: read while it grows, turned into points of curves.

One JSON object a line: `step` (updates, int), `time` (seconds since 1970), and numbers under the
names of their curves; `epoch` (float) beside them. Text and nested values are left out. The
reports draw `loss`, `heldout_loss`, `heldout_accuracy` and `lr`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeGuard

from hadpsgd.tracking.events import Point

FILE = "metrics.jsonl"
Row = dict[str, Any]
_AXES = ("step", "time")


class GrowingFile:
    """Complete new lines of a file that another process appends to.

    A file that became shorter (training resumed and cut it) is read from its start again.
    """

    def __init__(self, path: Path) -> None:
        """The file need not exist yet."""
        self.path = path
        self._offset = 0

    def rows(self) -> Iterator[Row]:
        """Rows since the last call; a line that is not a JSON object is left out."""
        try:
            with self.path.open("rb") as stream:
                if stream.seek(0, 2) < self._offset:
                    self._offset = 0
                stream.seek(self._offset)
                for line in stream:
                    if not line.endswith(b"\n"):
                        return
                    self._offset += len(line)
                    if row := _row(line):
                        yield row
        except FileNotFoundError:
            return


def read(path: Path) -> list[Row]:
    """All rows of a file; empty where there is none."""
    return list(GrowingFile(path).rows())


def points(rows: Iterable[Row], prefix: str = "") -> Iterator[Point]:
    """One point for every number of a row; rows without a step are left out."""
    for row in rows:
        step, seconds = row.get("step"), row.get("time")
        if not _number(step) or not _number(seconds):
            continue
        for name, value in row.items():
            if name not in _AXES and _number(value):
                yield Point(
                    name=prefix + name,
                    value=float(value),
                    step=int(step),
                    time_ms=int(seconds * 1000),
                )


def epoch_points(rows: Iterable[Row]) -> Iterator[Point]:
    """Points against whole epochs, as `epoch/<name>`, for rows written at the end of one."""
    for row in rows:
        epoch = row.get("epoch")
        if _number(epoch) and epoch > 0 and math.isclose(epoch, round(epoch), abs_tol=1e-9):
            values = {name: value for name, value in row.items() if name != "epoch"}
            yield from points([values | {"step": round(epoch)}], "epoch/")


def _number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _row(line: bytes) -> Row | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None
