"""Waiting for a lock, and what its file says of who has it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from slurm_cluster import until

from hadpsgd.errors import UserError
from hadpsgd.locks import ends, locked, look

PATIENCE = 100.0
WAITS = """
import sys
from pathlib import Path
from hadpsgd.errors import UserError
from hadpsgd.training import interrupt
interrupt.catch()
from hadpsgd.locks import ends, locked, look
try:
    with locked(Path(sys.argv[1]), "the second", wait=True):
        print("taken")
except UserError as error:
    print(error)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_ends_the_wait_for_a_lock(number: signal.Signals, tmp_path: Path) -> None:
    """Else a job that is preempted as it waits is killed without a word."""
    with locked(tmp_path / "lock", "the first"):
        waiting = subprocess.Popen(
            [sys.executable, "-c", WAITS, str(tmp_path / "lock")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert waiting.stderr is not None
            assert "the first trains this run; waiting" in waiting.stderr.readline()
            waiting.send_signal(number)
            until(lambda: waiting.poll() is not None, PATIENCE)
        finally:
            waiting.kill()
        said, _ = waiting.communicate()
    assert "the first trains this run already" in said


def test_a_lock_names_its_holder_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever held it before may have had a longer name."""
    monkeypatch.setattr("hadpsgd.locks.GRACE_SECONDS", 0.0)
    file = tmp_path / "lock"
    with locked(file, "process 123456 on a host with a long name (Slurm job 99)"):
        pass
    with locked(file, "process 7 on b"):
        assert file.read_text() == "process 7 on b\n"
        with pytest.raises(UserError) as refused, locked(file, "process 8 on c"):
            pass
    assert str(refused.value).startswith(f"{tmp_path}: process 7 on b trains this run already")


def test_a_lock_is_free_after_its_block(tmp_path: Path) -> None:
    with pytest.raises(KeyError), locked(tmp_path / "lock", "one"):
        raise KeyError
    with locked(tmp_path / "lock", "two") as descriptor:
        assert descriptor is not None


@pytest.mark.parametrize("killed", [True, False])
def test_a_lock_that_another_had_since_a_look(killed: bool, tmp_path: Path) -> None:
    """It came and went, or it only went: both may have changed what was decided by the look."""
    file = tmp_path / "lock"
    for before in (look(file), look(file)):
        with locked(file, "one", seen=before) as descriptor:  # nobody has been there since
            assert descriptor is not None
            during = look(file)
            with pytest.raises(UserError, match="one trains this run already"):
                locked(file, "two", seen=during).__enter__()
            if not killed:
                ends(descriptor, "one")
        for seen in (before, during):
            with pytest.raises(UserError, match="ended here meanwhile"):
                locked(file, "two", seen=seen).__enter__()
        with locked(file, "three", seen=look(file)) as descriptor:
            assert descriptor is not None
        file.unlink()
