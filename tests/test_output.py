"""Standard output that takes no more: a closed pipe, a full disk; and results that cannot be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hadpsgd.cli import USER_ERROR, main

HADPSGD = [sys.executable, "-c", "import sys; from hadpsgd.cli import main; sys.exit(main())"]


def ended(*arguments: str, output: int | str, at_once: bool) -> tuple[int, str]:
    """Exit status and standard error of a command.

    at_once: each line is written as it comes, as many containers have it.
    """
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    env |= {"PYTHONUNBUFFERED": "1"} if at_once else {}
    stream = output if isinstance(output, int) else os.open(output, os.O_WRONLY)
    try:
        done = subprocess.run(
            [*HADPSGD, *arguments],
            stdout=stream,
            stderr=subprocess.PIPE,
            env=env,
            text=True,
            check=False,
        )
    finally:
        os.close(stream)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("arguments", "at_once"),
    [
        (["--help"], False),
        (["--help"], True),
        (["config", "--schema"], False),
        (["config", "--schema"], True),
        (["config", "--help"], False),  # at once argparse keeps it to itself
    ],
)
def test_a_full_disk_is_one_line(arguments: list[str], at_once: bool) -> None:
    """However much is printed: what is lost is never called done."""
    if not Path("/dev/full").is_char_device():
        pytest.skip("no /dev/full here")
    status, said = ended(*arguments, output="/dev/full", at_once=at_once)
    assert status == USER_ERROR
    assert said.count("\n") == 1 and "error: the disk is full" in said


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["config", "--schema"]])
def test_a_reader_that_has_enough(arguments: list[str], at_once: bool) -> None:
    """`hadpsgd --help | head -1`: no complaint."""
    reading, writing = os.pipe()
    os.close(reading)
    assert ended(*arguments, output=writing, at_once=at_once) == (1, "")


@pytest.mark.parametrize("command", ["status", "compare", "track", "doctor"])
@pytest.mark.parametrize("kind", ["below a file", "circle"])
def test_results_that_cannot_be(
    command: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if kind == "circle":
        (tmp_path / "r").symlink_to("r")
    else:
        (tmp_path / "r").touch()
    text = f"name: t\ncorpus: {{kind: builtin}}\nresults: {tmp_path}/r\n"
    (tmp_path / "config.yaml").write_text(text)
    status = main([command, "--config", f"{tmp_path}/config.yaml"])
    said = capsys.readouterr()
    if command == "doctor":
        assert status == 1 and f"fail  results: {tmp_path}/r" in said.out
    else:
        assert status == USER_ERROR
        assert said.err.count("\n") == 1 and str(tmp_path / "r") in said.err
