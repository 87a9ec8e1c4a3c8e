"""`hadpsgd launch --learners N`: processes of a user's script, how they end, what they hear."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from hadpsgd import cli

SAYS = "import os, sys, time, pathlib; rank = os.environ['RANK']; pathlib.Path(rank).touch();"


def start(folder: Path, learners: int, code: str) -> subprocess.Popen[str]:
    """A script with an argument."""
    (folder / "user.py").write_text(SAYS + code)
    command = [sys.executable, "-m", "hadpsgd", "launch", f"--learners={learners}"]
    return subprocess.Popen(
        [*command, "user.py", "--learners", "7"], cwd=folder, stderr=subprocess.PIPE, text=True
    )


def until(so: Callable[[], bool]) -> None:
    """Within two minutes."""
    deadline = time.monotonic() + 120
    while not so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_first_failure_ends_all(tmp_path: Path) -> None:
    """Its status is that of the command; the others would sleep for ever."""
    code = (
        "assert sys.argv[1:] == ['--learners', '7']; rank == '1' and sys.exit(3); time.sleep(999)"
    )
    launched = start(tmp_path, 3, code)
    _, said = launched.communicate(timeout=120)
    assert launched.returncode == 3
    assert said == "hadpsgd launch: learner 1 ended with status 3; the others are ended\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_reach_the_script(number: signal.Signals, tmp_path: Path) -> None:
    """As if it had been started by hand: SIGTERM ends it, if it does nothing about it; and so it is
    when the terminal is closed."""
    launched = start(tmp_path, 2, "time.sleep(999)")
    until(lambda: (tmp_path / "0").exists() and (tmp_path / "1").exists())
    launched.send_signal(number)
    _, said = launched.communicate(timeout=120)
    assert launched.returncode == 128 + signal.SIGTERM
    assert "ended by signal 15" in said and said.count("\n") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="a process hears of its parent's end on Linux")
def test_learners_end_with_a_launcher_that_is_killed(tmp_path: Path) -> None:
    """They would train on, unseen, and keep a second start out."""
    launched = start(
        tmp_path, 2, "pathlib.Path('pid' + rank).write_text(str(os.getpid())); time.sleep(999)"
    )
    files = [tmp_path / f"pid{rank}" for rank in range(2)]
    until(lambda: all(file.exists() and file.read_text() for file in files))
    learners = [psutil.Process(int(file.read_text())) for file in files]
    launched.kill()
    launched.communicate(timeout=120)
    until(lambda: not any(learner.is_running() for learner in learners))


def test_what_cannot_be_started(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["--"], ["no/such/program"]):
        assert cli.main(["launch", "--learners", "2", *words]) == cli.USER_ERROR
    assert capsys.readouterr().err.count("\n") == 3


def test_a_script_without_the_number_of_learners(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["launch", "train.py", "--epochs", "3"]) == cli.USER_ERROR
    assert "hadpsgd launch --learners 8 train.py" in capsys.readouterr().err
