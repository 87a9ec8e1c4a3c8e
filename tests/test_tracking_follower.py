"""The follower beside a training: what it brings to MLflow, when it goes, what waits without it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tracking_data import (
    make_config,
    metric_rows,
    write_config,
    write_results,
    write_rows,
)
from tracking_store import steps

from hadpsgd import cli
from hadpsgd.config import Config
from hadpsgd.config.tracking import Tracking
from hadpsgd.tracking import follower, identity
from hadpsgd.tracking.command import _upload
from hadpsgd.tracking.run_ids import known_run
from hadpsgd.tracking.spool import keys_waiting
from hadpsgd.tracking.store import Store
from hadpsgd.tracking.sync import sync

PATIENCE = 300.0
pytestmark = pytest.mark.usefixtures("no_tracking_uri")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may start the follower late: here its last upload is waited for."""
    monkeypatch.setattr(follower, "LAST_UPLOAD_SECONDS", PATIENCE)
    monkeypatch.setattr(follower, "INTERRUPTED_SECONDS", PATIENCE)


def start(config: Config, folder: Path, run: str = "ssgd-4") -> Any:
    return follower.start(
        config,
        folder / "config.yaml",
        run,
        checkpoints=folder / "checkpoints",
        metrics=folder / "run" / "metrics.jsonl",
        rank=0,
    )


def new_training(folder: Path, **changes: object) -> Config:
    config = make_config(folder, **changes)
    write_config(config, folder / "config.yaml")
    (folder / "run").mkdir()
    (folder / "checkpoints").mkdir()
    return config


def curve(config: Config, key: str, name: str) -> list[int]:
    store = Store(config.tracking.uri, Path(config.results) / "tracking")
    return sorted(steps(store, key, name))


def test_follower_carries_a_training_and_its_resumption(mlflow_folder: Path) -> None:
    config = new_training(mlflow_folder)
    rows, metrics = metric_rows("ssgd-4"), mlflow_folder / "run/metrics.jsonl"
    with pytest.raises(KeyboardInterrupt), start(config, mlflow_folder):  # a preempted training
        write_rows(metrics, rows[:12])
        raise KeyboardInterrupt
    who = identity.read(mlflow_folder / "checkpoints")
    assert who is not None
    store = Store(config.tracking.uri, mlflow_folder / "tracking")
    assert store.client.get_run(store.run_id(who.key)).info.status == "KILLED"
    metrics.unlink()
    write_rows(metrics, rows[:6])  # back to the checkpoint
    with start(config, mlflow_folder):
        write_rows(metrics, [row | {"time": row["time"] + 100} for row in rows[6:]])
    run = store.client.get_run(store.run_id(who.key))
    assert run.info.status == "FINISHED"
    assert sorted(steps(store, who.key)) == list(range(5, 81, 5))
    assert sorted(steps(store, who.key, "epoch/heldout_loss")) == [1, 2, 3, 4]
    assert run.data.tags["strategy"] == "ssgd" and run.data.params["run.learners"] == "4"
    assert identity.read(mlflow_folder / "run") == who
    assert (mlflow_folder / "run/provenance.json").exists()


def test_what_pytorch_computes_with_is_told_by_the_training(mlflow_folder: Path) -> None:
    """To load PyTorch for that takes a follower two seconds of a processor."""
    new_training(mlflow_folder)
    write_rows(mlflow_folder / "run/metrics.jsonl", metric_rows("ssgd-4"))
    told = {"instructions": "AVX1024", "torch's libraries": "MKL 2099"}
    command = [sys.executable, "-X", "importtime", "-m", "hadpsgd", "track", "--follow"]
    command += ["--config", str(mlflow_folder / "config.yaml"), "--run", "ssgd-4"]
    command += ["--dir", str(mlflow_folder / "checkpoints"), "--arithmetic", json.dumps(told)]
    command += ["--metrics", str(mlflow_folder / "run/metrics.jsonl")]
    ran = subprocess.run(command, input=b"FINISHED", capture_output=True, check=False)
    loaded = {line.split(b"|")[-1].strip().decode() for line in ran.stderr.splitlines()}
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "mlflow" in loaded and "torch" not in loaded
    kept = json.loads((mlflow_folder / "checkpoints/provenance.json").read_text())["arithmetic"]
    assert {name: kept[name] for name in told} == told and kept["processor"]


@pytest.mark.parametrize("told", ["AVX512", '["AVX512"]'])
def test_what_is_no_json_object_is_one_line(
    told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new_training(tmp_path)
    command = ["track", "--follow", "--config", str(tmp_path / "config.yaml"), "--run", "ssgd-4"]
    command += ["--dir", str(tmp_path), "--metrics", str(tmp_path / "m"), "--arithmetic", told]
    assert cli.main(command) == cli.USER_ERROR
    assert f"--arithmetic {told} is no JSON object" in capsys.readouterr().err


def training_process(folder: Path, before: str = "") -> subprocess.Popen[bytes]:
    """A training that has just started its follower, in a session of its own."""
    code = f"""
import time
from pathlib import Path
from hadpsgd.config import load
from hadpsgd.tracking import follower
folder = Path({str(folder)!r})
config = load(folder / "config.yaml")
{before}
with follower.start(config, folder / "config.yaml", "ssgd-4", checkpoints=folder / "checkpoints",
                    metrics=folder / "run/metrics.jsonl", rank=0):
    print("started", flush=True)
    time.sleep(100)
"""
    command = [sys.executable, "-c", code]
    training = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    assert training.stdout is not None and training.stdout.readline() == b"started\n"
    return training


def test_follower_outlives_nothing(mlflow_folder: Path) -> None:
    """kill -9 of training: its follower catches up, marks the run and goes."""
    config = new_training(mlflow_folder)
    training = training_process(mlflow_folder)
    [child] = _children(training.pid)
    write_rows(mlflow_folder / "run/metrics.jsonl", metric_rows("ssgd-4"))
    os.kill(training.pid, signal.SIGKILL)
    training.wait()
    end = time.monotonic() + PATIENCE
    while Path(f"/proc/{child}").exists() and time.monotonic() < end:
        time.sleep(0.1)
    assert not Path(f"/proc/{child}").exists()
    who = identity.read(mlflow_folder / "checkpoints")
    assert who is not None
    store = Store(config.tracking.uri, mlflow_folder / "tracking")
    assert len(steps(store, who.key)) == 16
    assert store.client.get_run(store.run_id(who.key)).info.status == "KILLED"


@pytest.mark.parametrize("next_one", ["training", "track"])
def test_killed_with_its_follower_before_mlflow_was_reached(
    mlflow_folder: Path, next_one: str
) -> None:
    """As Slurm kills a job: what comes next with the store brings the run there, as killed."""
    config = new_training(mlflow_folder)
    # the follower stops at the lock of an earlier one, long before MLflow
    before = """
from hadpsgd.tracking import identity
from hadpsgd.tracking.spool import Spool
key = identity.read_or_create(folder / "checkpoints").key
earlier = Spool(folder / "tracking", key=key).followed()
earlier.__enter__()
"""
    training = training_process(mlflow_folder, before)
    os.killpg(training.pid, signal.SIGKILL)
    training.wait()
    who = identity.read(mlflow_folder / "checkpoints")
    assert (
        who is not None
        and known_run(mlflow_folder / "tracking", key=who.key, uri=config.tracking.uri) == {}
    )
    if next_one == "track":
        sync(config, None)
    else:
        write_config(config, mlflow_folder / "other/config.yaml")
        with start(config, mlflow_folder / "other", "single"):
            pass
    store = Store(config.tracking.uri, mlflow_folder / "tracking")
    run = store.client.get_run(store.run_id(who.key))
    assert (run.info.run_name, run.info.status) == ("ssgd-4", "KILLED")
    assert run.data.params["run.learners"] == "4" and run.info.end_time >= run.info.start_time


def test_follower_that_is_too_slow(mlflow_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not waited for: how training ended waits in the spool."""
    config = new_training(mlflow_folder)
    monkeypatch.setattr(follower, "LAST_UPLOAD_SECONDS", 0.0)
    with start(config, mlflow_folder):
        pass
    sync(config, None)
    who = identity.read(mlflow_folder / "checkpoints")
    assert who is not None
    store = Store(config.tracking.uri, mlflow_folder / "tracking")
    assert store.client.get_run(store.run_id(who.key)).info.status == "FINISHED"
    assert keys_waiting(mlflow_folder / "tracking") == []


def _children(pid: int) -> list[int]:
    import psutil

    return [child.pid for child in psutil.Process(pid).children()]


def test_training_goes_on_without_a_server_and_is_uploaded_later(
    mlflow_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{closed.getsockname()[1]}"
    config = new_training(mlflow_folder, tracking={"uri": dead, "every_seconds": 0.2})
    rows = metric_rows("ssgd-4")
    with start(config, mlflow_folder):
        write_rows(mlflow_folder / "run/metrics.jsonl", rows)
    errors = capfd.readouterr().err
    assert errors.count("\n") == 1 and "no server answers" in errors and "--upload" in errors
    (mlflow_folder / "run/metrics.jsonl").unlink()  # all is in the spool
    alive = make_config(mlflow_folder)
    assert _upload(alive) == 0 and "uploaded 1 runs" in capfd.readouterr().out
    who = identity.read(mlflow_folder / "checkpoints")
    assert who is not None
    assert curve(alive, who.key, "loss") == list(range(5, 81, 5))
    assert _upload(alive) == 0 and "nothing waits" in capfd.readouterr().out


@pytest.mark.parametrize("by", ["config", "environment"])
def test_tracking_can_be_off(by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"sqlite:///{tmp_path}/other.db"
    inside, outside = ("none", uri) if by == "config" else (uri, "none")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", outside)
    config = write_results(tmp_path)
    config = config.model_copy(update={"tracking": Tracking(uri=inside)})
    file = write_config(config, tmp_path / "config.yaml")
    (tmp_path / "run").mkdir()
    with start(config, tmp_path):
        write_rows(tmp_path / "run/metrics.jsonl", metric_rows("ssgd-4"))
    assert (tmp_path / "run/provenance.json").exists()
    for mode in ([], ["--upload"], ["--check"]):
        assert cli.main(["track", "--config", str(file), *mode]) == 0
    assert not list(tmp_path.glob("**/*.db")) and not list(tmp_path.glob("tracking/*/*"))
