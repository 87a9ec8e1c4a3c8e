"""Checksums of files from outside: which are computed again, and what a kill leaves of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hadpsgd import checksums
from hadpsgd.checksums import Checksums


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where they are kept; files count as settled at once."""
    monkeypatch.setattr(checksums, "_SETTLED_NS", -(10**12))
    (tmp_path / "results/x").mkdir(parents=True)
    return tmp_path / "results/x/checksums.json"


def switch(folder: Path) -> None:
    """A release behind a symlink."""
    (folder / "now").unlink()
    (folder / "now").symlink_to(folder / "b")


def move(folder: Path) -> None:
    (folder / "b").replace(folder / "a")


def rewrite(folder: Path) -> None:
    """In place, and the time put back."""
    (folder / "a").write_text("bbb")
    os.utime(folder / "a", ns=(10**18, 10**18))


@pytest.mark.parametrize("change", [switch, move, rewrite])
def test_another_content_of_the_same_size_and_time(
    change: Callable[[Path], None], record: Path, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name * 3)
        os.utime(tmp_path / name, ns=(10**18, 10**18))
    (tmp_path / "now").symlink_to(tmp_path / "a")
    before = Checksums(record)
    was = before.of([tmp_path / "now"])
    before.write()
    assert Checksums(record).of([tmp_path / "now"]) == was
    change(tmp_path)
    assert Checksums(record).of([tmp_path / "now"]) != was


def test_recorded_files_are_not_read_again(
    record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("aaa")
    first = Checksums(record)
    was = first.of([tmp_path / "a"])
    first.write()
    monkeypatch.setattr(checksums, "sha256", lambda path: pytest.fail(f"{path} is read"))
    assert Checksums(record).of([tmp_path / "a"]) == was


@pytest.mark.parametrize("old", ['{"/a": [3, 1, "sum"]}', "[]", "{", '{"/a": [[1, 2], "sum"]}'])
def test_a_record_of_another_form_counts_as_none(old: str, record: Path, tmp_path: Path) -> None:
    record.write_text(old)
    (tmp_path / "a").write_text("aaa")
    (found,) = Checksums(record).of([tmp_path / "a"])
    assert len(found) == 64


@pytest.mark.parametrize("locked", [True, False])
def test_what_was_read_before_a_kill_is_kept(
    locked: bool, record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By who has the lock of the results; the others write nothing."""
    files = [tmp_path / str(number) for number in range(6)]
    for file in files:
        file.write_text(file.name)

    def read(path: Path) -> str:
        if path == files[5]:
            raise KeyboardInterrupt
        return path.name

    monkeypatch.setattr(checksums, "sha256", read)
    monkeypatch.setattr(checksums, "_CHUNK", 2)
    sums = Checksums(record)
    if locked:
        sums.write()
    with pytest.raises(KeyboardInterrupt):
        sums.of(files)
    kept = json.loads(record.read_text()) if record.exists() else {}
    assert [*kept] == [str(file) for file in files[:4] if locked]
