"""Outputs appear whole or not at all, and something else in their place is told in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from hadpsgd import cli
from hadpsgd.errors import UserError
from hadpsgd.files import atomic_file, atomic_folder


def test_a_file_stands_where_a_folder_is_needed(tmp_path: Path) -> None:
    """Told before anything is made, and the file stays."""
    (taken := tmp_path / "taken").write_text("mine")
    for make, path in (
        (atomic_folder, taken),
        (atomic_folder, taken / "a" / "b"),
        (atomic_file, taken / "a"),
    ):
        what = "taken: is a file, where a folder is needed"
        with pytest.raises(UserError, match=what), make(path):
            pytest.fail("it began")
    assert taken.read_text() == "mine" and [*tmp_path.iterdir()] == [taken]


def test_a_folder_stands_where_a_file_is_needed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the user of a stage meets it."""
    what = "is a folder, where a file is needed"
    with pytest.raises(UserError, match=what), atomic_file(tmp_path):
        pytest.fail("it began")
    (tmp_path / "takes.csv").write_text("file,text\na.wav,yes\n")
    (blocked := tmp_path / "blocked").write_text("mine")
    made = ["init", "--csv", str(tmp_path / "takes.csv"), "--out", str(tmp_path / "c.yaml")]
    assert cli.main([*made, "--data", str(blocked / "data")]) == 2
    told = capsys.readouterr().err
    assert f"{blocked}: is a file" in told and told.count("\n") == 1


def test_processes_of_one_number_write_apart(tmp_path: Path) -> None:
    """Those of several hosts, or containers, in a folder that they share."""
    path = tmp_path / "a"
    with atomic_file(path) as one, atomic_file(path) as other:
        one.write_text("one")
        other.write_text("other")
    assert path.read_text() == "one" and [*tmp_path.iterdir()] == [path]
