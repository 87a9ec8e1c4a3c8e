"""metrics.jsonl, the record of training: read while it grows.

One JSON object a line: `step` (updates, int), `time` (seconds since 1970), and numbers under the
names of their curves; `epoch` (float) beside them. Text and nested values are left out. The
reports draw `loss`, `heldout_loss`, `heldout_accuracy` and `lr`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FILE = "metrics.jsonl"
Row = dict[str, Any]


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


def numbers(path: Path) -> list[Row]:
    """The numbers of the run as a whole, row by row.

    Those of each learner (`learner_3/loss`), of which there may be hundreds, and nested values are
    left out: a day of 128 learners would take more than a GiB.
    """
    return [
        {
            sys.intern(name): value
            for name, value in row.items()
            if isinstance(value, (int, float)) and "/" not in name
        }
        for row in GrowingFile(path).rows()
    ]


def last_rows(path: Path, *, size: int) -> Iterator[Row]:
    """Rows of the last `size` bytes of a file, which may be many times longer; none where there is
    no file. As `GrowingFile`, without what is no row or not written to its end."""
    try:
        with path.open("rb") as stream:
            start = max(0, stream.seek(0, 2) - size)
            stream.seek(start)
            if start:
                stream.readline()  # most likely not from its beginning
            for line in stream:
                if line.endswith(b"\n") and (row := _row(line)):
                    yield row
    except FileNotFoundError:
        return


def _row(line: bytes) -> Row | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None
