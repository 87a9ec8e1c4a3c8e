"""Stages end with the workflow that started them."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from slurm_cluster import until

from hadpsgd import guard

PATIENCE = 200.0
STAGE = """
import subprocess, sys, time
from pathlib import Path
from hadpsgd import guard
child = subprocess.Popen(["sleep", "900"])
guard.watch(guard.die)
Path(sys.argv[1]).write_text(str(child.pid))
time.sleep(900)
"""
WORKFLOW = """
import subprocess, sys
from hadpsgd import guard
guard.announce()
subprocess.run(["bash", "-c", f"{sys.executable} -c '{sys.argv[1]}' {sys.argv[2]}; true"])
"""


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_stage_dies_with_a_workflow_that_is_killed_outright(tmp_path: Path) -> None:
    file = tmp_path / "child"
    workflow = subprocess.Popen([sys.executable, "-c", WORKFLOW, STAGE, str(file)])
    try:
        until(lambda: file.is_file() and file.read_text() != "", PATIENCE)
        started = psutil.Process(workflow.pid).children(recursive=True)
        assert int(file.read_text()) in [process.pid for process in started]
        assert len(started) >= 3  # bash, the stage, and what it started
        stage = [process for process in started if process.name() != "bash"]
        workflow.kill()
        workflow.wait()
        until(lambda: not any(map(lives, stage)), PATIENCE)
    finally:
        workflow.kill()


@pytest.mark.parametrize("value", ["", "no number", "999999999"])
def test_by_hand_nothing_is_watched(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(guard.VARIABLE, value)
    before = threading.active_count()
    guard.watch(lambda: None)
    assert threading.active_count() == before


def test_training_is_asked_to_stop() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        guard.stop()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM]


def test_a_workflow_that_goes_while_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two questions to the system: the stage must not live on."""
    owner, ended = psutil.Process(), []
    monkeypatch.setattr(owner, "is_running", lambda: True)

    def gone() -> str:
        raise psutil.NoSuchProcess(owner.pid)

    monkeypatch.setattr(owner, "status", gone)
    guard._wait(owner, lambda: ended.append(1))
    assert ended == [1]
