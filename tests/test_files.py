"""Outputs appear whole or not at all, and something else in their place is told in one line."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hadpsgd import cli
from hadpsgd.errors import UserError
from hadpsgd.files import atomic_file, atomic_folder, file_name


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


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text("\u00e9/a", min_size=190))
def test_names_of_files_fit_and_stay_apart(short: str, long: str) -> None:
    """With an ending, and as the hidden file that is being written."""
    made = [file_name(name) for name in (long + short, f"{long}x{short}", f"{long}y{short}")]
    assert len(set(made)) == 3 and "/" not in "".join(made)
    assert all(len(name.encode()) <= 200 for name in made)
    safe = short.replace("/", "%2F")
    assert (file_name(short) == safe) is (len(safe.encode()) <= 200)


def test_names_as_long_as_they_may_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is there until a file is whole has a shorter one."""
    for make, last in product((atomic_file, atomic_folder), ("x", os.fsdecode(b"\xff"))):
        with make(tmp_path / make.__name__.ljust(255, last)) as temporary:
            if make is atomic_file:
                temporary.write_text("whole")
    assert len(list(tmp_path.iterdir())) == 4
    for make in (atomic_file, atomic_folder):
        with pytest.raises(UserError, match="the name is too long"), make(tmp_path / (256 * "x")):
            pytest.fail("it began")
    (tmp_path / "takes.csv").write_text("file,text\na.wav,yes\n")
    made = ["init", "--csv", str(tmp_path / "takes.csv"), "--out", str(tmp_path / ("x" * 300))]
    assert cli.main(made) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1 and told[0].endswith("xxx: File name too long")


def test_processes_of_one_number_write_apart(tmp_path: Path) -> None:
    """Those of several hosts, or containers, in a folder that they share."""
    path = tmp_path / "a"
    with atomic_file(path) as one, atomic_file(path) as other:
        one.write_text("one")
        other.write_text("other")
    assert path.read_text() == "one" and [*tmp_path.iterdir()] == [path]
