"""metrics.jsonl, whose process is killed, or stands still, before any of its file operations."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hadpsgd.training.metrics import Metrics
from hadpsgd.training.row_file import rows_of

OPERATIONS = ("open", "os.rename", "os.link", "os.symlink", "os.remove", "os.scandir", "os.listdir")
"""As Python's audit names them."""


class Killed(BaseException):
    """Nothing that this process does from now on has an effect."""


class Operations:
    """Calls `before` with the number of each file operation in a folder, as long as it is set."""

    def __init__(self) -> None:
        self.folder = ""
        self.count = 0
        self.before: Callable[[int], None] | None = None

    def hear(self, event: str, args: tuple[Any, ...]) -> None:
        """The hook."""
        if self.before and event in OPERATIONS and self.folder in os.fspath(args[0]):
            self.count += 1
            self.before(self.count)

    def watch(self, folder: Path, before: Callable[[int], None]) -> None:
        """From now on."""
        self.folder, self.count, self.before = str(folder), 0, before


HEARD = Operations()
sys.addaudithook(HEARD.hear)


@pytest.fixture(autouse=True)
def _heard() -> Iterator[None]:
    yield
    HEARD.before = None


def begin(folder: Path, start: int, *, step: int, life: int = 0) -> Metrics:
    return Metrics(folder, rank=0, step=step, process=(start, life))


def first(folder: Path) -> None:
    """A start that was killed at step 3; its last checkpoint has step 2."""
    metrics = begin(folder, 1, step=0)
    for step in (1, 2, 3):
        metrics.write(step=step, start=1)
    metrics.close()


def told(folder: Path) -> list[tuple[int, int]]:
    """Step, and the start that wrote it."""
    return [(row["step"], row["start"]) for row in rows_of(folder / "metrics.jsonl")]


KEPT = [(1, 1), (2, 1)]


def folders(root: Path) -> Iterator[tuple[int, Path]]:
    """One for each operation; the last has more operations than there are."""
    for number in itertools.count(1):
        folder = root / str(number)
        folder.mkdir()
        first(folder)
        yield number, folder


def test_a_kill_before_any_operation_loses_no_row_of_before(tmp_path: Path) -> None:
    def killed(number: int) -> None:
        if number >= last:
            raise Killed

    for last, folder in folders(tmp_path):
        HEARD.watch(folder, killed)
        with suppress(Killed):
            metrics = begin(folder, 2, step=2)
            metrics.write(step=3, start=2)
            metrics.close()
        HEARD.before = None
        assert told(folder)[:2] == KEPT, "those who read along see them"
        begin(folder, 3, step=2).write(step=3, start=3)
        assert told(folder) == [*KEPT, (3, 3)]
        if HEARD.count < last:
            break
    assert last > 10


@pytest.mark.parametrize("former", [(2, 0), (3, 0)])
@pytest.mark.parametrize("again", ["goes on", "is killed"])
def test_one_that_stood_still_takes_no_row_of_its_successor(
    former: tuple[int, int], again: str, tmp_path: Path
) -> None:
    """It is of a former start, or had the successor's rank before, and begins, late, to write."""
    successors: list[Metrics] = []

    def successor(number: int) -> None:
        if number == last:
            HEARD.before = None
            successors.append(begin(folder, 3, step=2, life=1))
            successors[0].write(step=3, start=3)

    for last, folder in folders(tmp_path):
        successors.clear()
        HEARD.watch(folder, successor)
        woken = begin(folder, former[0], step=2)
        woken.write(step=3, start=2)
        HEARD.before = None
        if HEARD.count < last:
            break
        if again == "goes on":
            successors[0].write(step=4, start=3)
            woken.write(step=4, start=2)
            woken.close()
            assert told(folder) == [*KEPT, (3, 3), (4, 3)]
        else:
            begin(folder, 4, step=3)
            assert told(folder) == [*KEPT, (3, 3)]
    assert last > 10


def test_one_that_was_given_up_shows_no_row_any_more(tmp_path: Path) -> None:
    first(tmp_path)
    woken = begin(tmp_path, 3, step=2)
    begin(tmp_path, 3, step=2, life=1).write(step=3, start=3)
    woken.write(step=3, start=2)
    woken.close()
    assert told(tmp_path) == [*KEPT, (3, 3)]


def test_half_a_row_is_left_out(tmp_path: Path) -> None:
    """A kill may leave any part of the last one."""
    first(tmp_path)
    [own] = tmp_path.glob(".metrics.jsonl.*")
    content = own.read_bytes()
    whole = content.rstrip().rindex(b"\n") + 1
    for size in range(whole, len(content) - 1):
        own.write_bytes(content[:size])
        begin(tmp_path, 1, step=3).close()
        assert told(tmp_path) == KEPT
        assert own.read_bytes() == content[:whole]


def test_a_file_of_a_former_version_is_gone_on_from(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "start": 0}\n{"step": 2, "start": 0}\n')
    metrics = begin(tmp_path, 1, step=1)
    metrics.write(step=2, start=1)
    assert told(tmp_path) == [(1, 0), (2, 1)]


def test_a_file_system_without_hard_links_has_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "hardlink_to", refused)
    first(tmp_path)
    begin(tmp_path, 2, step=2).write(step=3, start=2)
    assert told(tmp_path) == [*KEPT, (3, 2)]
    (tmp_path / "metrics.jsonl").unlink()
    begin(tmp_path, 3, step=3).close()
    assert told(tmp_path) == [*KEPT, (3, 2)]
