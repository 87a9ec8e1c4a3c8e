"""Rows that a process appends to a file of its own, and the one name under which all read them.

The process of a rank that was given up, or is of a former start, may go on when its successor has
begun: it may put its file under that name, late, and must not take the successor's rows with it. So
each process writes to `.metrics.jsonl.<start>.<life>`, which no other one writes, and links that to
`metrics.jsonl`. If another one's is found there, the later process links its own again. Who resumes
takes up the rows of the last process, whatever the name has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hadpsgd.files import atomic_file, explain_os_errors

Row = dict[str, Any]


class RowFile:
    """The rows of one process; those of former ones that count come first.

    Args:
        path: where they are read.
        process: its start and its life, as in `Meeting`: of two, the later one's are greater.
        counts: whether a row of a former process does.
    """

    def __init__(
        self, path: Path, *, process: tuple[int, int], counts: Callable[[Row], bool]
    ) -> None:
        self.path = path
        start, life = process
        self._own = path.with_name(f".{path.name}.{start}.{life}")
        with explain_os_errors(path):
            former = [each for each in self._files() if _process(each) <= process]
            before = max(former, key=_process, default=path)
            self.kept = [row for row in rows_of(before) if counts(row)]
            """Of former processes."""
            with atomic_file(self._own) as temporary:
                temporary.write_text("".join(json.dumps(row) + "\n" for row in self.kept))
            self._stream = self._own.open("a", encoding="utf-8")
            self._show()
            for each in former:
                if each != self._own:
                    each.unlink(missing_ok=True)

    def write(self, row: Row) -> None:
        """One row, at once on disk for those who read along."""
        with explain_os_errors(self.path):
            self._stream.write(json.dumps(row) + "\n")
            self._stream.flush()
            self._show()

    def close(self) -> None:
        """No more rows."""
        self._show()
        self._stream.close()

    def _show(self) -> None:
        """Put this process's file under the name, if it is not, and there is no later process."""
        with suppress(FileNotFoundError):  # its own is gone if there is a later one
            if self.path.samefile(self._own):
                return
        if max(self._files(), key=_process, default=None) != self._own:
            return
        link = self._own.with_name(f"{self._own.name}.tmp")
        link.unlink(missing_ok=True)
        try:
            link.hardlink_to(self._own)
        except FileNotFoundError:  # there is a later process now
            return
        except OSError:  # some file systems have symbolic ones alone
            link.symlink_to(self._own.name)
        link.replace(self.path)

    def _files(self) -> list[Path]:
        return _files(self.path)


def after_all(path: Path) -> tuple[int, int]:
    """The process that comes after all that have written here, where nobody counts starts."""
    return max((_process(each)[0] for each in _files(path)), default=0) + 1, 0


def _files(path: Path) -> list[Path]:
    """Of all processes."""
    form = re.compile(re.escape(f".{path.name}.") + r"\d+\.\d+")
    return [each for each in path.parent.glob(".*") if form.fullmatch(each.name)]


def _process(file: Path) -> tuple[int, int]:
    """Whose it is."""
    _, start, life = file.name.rsplit(".", 2)
    return int(start), int(life)


def rows_of(path: Path) -> list[Row]:
    """Of a file of rows, as far as they are whole; none where there is no file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    rows = []
    for line in lines:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue  # a kill left half a line
    return rows
