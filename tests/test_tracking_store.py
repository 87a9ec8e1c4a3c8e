"""MLflow on sqlite: what is written, once; the follower beside a training; the spool's upload."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tracking_data import (
    RUNS,
    make_config,
    metric_rows,
    write_config,
    write_results,
    write_rows,
    write_scores,
)

from hadpsgd import cli
from hadpsgd.config import Config
from hadpsgd.config.tracking import Tracking
from hadpsgd.reports.command import write
from hadpsgd.tracking import follower, identity
from hadpsgd.tracking.command import _upload
from hadpsgd.tracking.events import Begin, Event, Finish, Metrics, Params, Point, Tags
from hadpsgd.tracking.recorder import Connection, Recorder
from hadpsgd.tracking.spool import keys_waiting
from hadpsgd.tracking.store import NotStoredError, Store, known_run
from hadpsgd.tracking.sync import TABLES, sync, tracked_runs

PATIENCE = 300.0


@pytest.fixture(autouse=True)
def own_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    # a busy machine may start the follower late: here its last upload is waited for
    monkeypatch.setattr(follower, "LAST_UPLOAD_SECONDS", PATIENCE)
    monkeypatch.setattr(follower, "INTERRUPTED_SECONDS", PATIENCE)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("store")
    store = Store(f"sqlite:///{folder}/mlflow.db", folder / "spool")
    shutil.copyfile(folder / "mlflow.db", folder / "empty.db")
    return store


@pytest.fixture
def ready(store: Store, tmp_path: Path) -> Path:
    """A folder with an empty database: making its tables takes seconds."""
    shutil.copyfile(
        Path(store.uri.removeprefix("sqlite:///")).parent / "empty.db", tmp_path / "mlflow.db"
    )
    return tmp_path


def begin(name: str = "r") -> list[Event]:
    return [Begin(name=name, experiment="x", time_ms=1000)]


def loss(steps: range, value: float = 1.0, time_ms: int = 5000) -> Metrics:
    points = [Point(name="loss", value=value, step=s, time_ms=time_ms + s) for s in steps]
    return Metrics(points=points)


def steps(store: Store, key: str, name: str = "loss") -> list[int]:
    return [m.step for m in store.client.get_metric_history(store.run_id(key), name)]


def test_each_step_once_over_a_resume(store: Store) -> None:
    """Killed at step 29, resumed from a checkpoint at 19, by a process that knows nothing."""
    store.apply("resumed", [*begin(), loss(range(30))])
    fresh = Store(store.uri, store._spool)
    fresh.apply("resumed", [*begin(), loss(range(20, 50), value=2.0, time_ms=9000)])
    assert fresh.run_id("resumed") == store.run_id("resumed")
    assert sorted(steps(store, "resumed")) == list(range(50))


def test_more_points_than_one_call_takes(store: Store) -> None:
    store.apply("long", [*begin(), loss(range(2500))])
    assert sorted(steps(store, "long")) == list(range(2500))


def test_applying_twice_changes_nothing(store: Store) -> None:
    events: list[Event] = [
        *begin(),
        Params(values={f"p{n}": "v" * 9000 for n in range(150)}),
        Tags(values={"corpus": "builtin"}),
        loss(range(3)),
        Finish(status="FINISHED", time_ms=7000),
    ]
    for _ in range(2):
        store.apply("twice", events)
    run = store.client.get_run(store.run_id("twice"))
    assert len(run.data.params) == 150 and run.data.tags["corpus"] == "builtin"
    assert (run.info.status, run.info.start_time, run.info.end_time) == ("FINISHED", 1000, 7000)
    experiment = run.info.experiment_id
    found = store.client.search_runs([experiment], "tags.`hadpsgd.key` = 'twice'")
    assert len(found) == 1


def test_changed_parameter_becomes_a_tag(store: Store) -> None:
    store.apply("params", [*begin(), Params(values={"beam": "13"})])
    store.apply("params", [Params(values={"beam": "15", "new": "1"})])
    data = store.client.get_run(store.run_id("params")).data
    assert data.params == {"beam": "13", "new": "1"} and data.tags["changed.beam"] == "15"


def test_latest_score_is_shown(store: Store) -> None:
    for time_ms, value in ((1000, 9.0), (2000, 8.0)):
        point = Point(name="WER/swb", value=value, step=0, time_ms=time_ms)
        store.apply("score", [*begin(), Metrics(points=[point], replace=True)])
    assert store.client.get_run(store.run_id("score")).data.metrics["WER/swb"] == 8.0


def test_run_is_found_again_without_the_spool(store: Store, tmp_path: Path) -> None:
    store.apply("elsewhere", begin())
    other = Store(store.uri, tmp_path)
    other.apply("elsewhere", begin())
    assert other.run_id("elsewhere") == store.run_id("elsewhere")


@pytest.mark.parametrize(
    "uri", ["http://127.0.0.1:9", "sqlite:////proc/none/x.db", "postgresql://u:pw@127.0.0.1:9/x"]
)
def test_unreachable_store_is_one_line(uri: str, tmp_path: Path) -> None:
    with pytest.raises(NotStoredError) as caught:
        Store(uri, tmp_path)
    assert "\n" not in str(caught.value) and "pw" not in str(caught.value)


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


def test_follower_carries_a_training_and_its_resumption(ready: Path) -> None:
    config = new_training(ready)
    rows, metrics = metric_rows("ssgd-4"), ready / "run/metrics.jsonl"
    with pytest.raises(KeyboardInterrupt), start(config, ready):  # a preempted training
        write_rows(metrics, rows[:12])
        raise KeyboardInterrupt
    who = identity.read(ready / "checkpoints")
    assert who is not None
    store = Store(config.tracking.uri, ready / "tracking")
    assert store.client.get_run(store.run_id(who.key)).info.status == "KILLED"
    metrics.unlink()
    write_rows(metrics, rows[:6])  # back to the checkpoint
    with start(config, ready):
        write_rows(metrics, [row | {"time": row["time"] + 100} for row in rows[6:]])
    run = store.client.get_run(store.run_id(who.key))
    assert run.info.status == "FINISHED"
    assert sorted(steps(store, who.key)) == list(range(5, 81, 5))
    assert sorted(steps(store, who.key, "epoch/heldout_loss")) == [1, 2, 3, 4]
    assert run.data.tags["strategy"] == "ssgd" and run.data.params["run.learners"] == "4"
    assert identity.read(ready / "run") == who
    assert (ready / "run/provenance.json").exists()


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


def test_follower_outlives_nothing(ready: Path) -> None:
    """kill -9 of training: its follower catches up, marks the run and goes."""
    config = new_training(ready)
    training = training_process(ready)
    [child] = _children(training.pid)
    write_rows(ready / "run/metrics.jsonl", metric_rows("ssgd-4"))
    os.kill(training.pid, signal.SIGKILL)
    training.wait()
    end = time.monotonic() + PATIENCE
    while Path(f"/proc/{child}").exists() and time.monotonic() < end:
        time.sleep(0.1)
    assert not Path(f"/proc/{child}").exists()
    who = identity.read(ready / "checkpoints")
    assert who is not None
    store = Store(config.tracking.uri, ready / "tracking")
    assert len(steps(store, who.key)) == 16
    assert store.client.get_run(store.run_id(who.key)).info.status == "KILLED"


@pytest.mark.parametrize("next_one", ["training", "track"])
def test_killed_with_its_follower_before_mlflow_was_reached(ready: Path, next_one: str) -> None:
    """As Slurm kills a job: what comes next with the store brings the run there, as killed."""
    config = new_training(ready)
    # the follower stops at the lock of an earlier one, long before MLflow
    before = """
from hadpsgd.tracking import identity
from hadpsgd.tracking.spool import Spool
key = identity.read_or_create(folder / "checkpoints").key
earlier = Spool(folder / "tracking", key).followed()
earlier.__enter__()
"""
    training = training_process(ready, before)
    os.killpg(training.pid, signal.SIGKILL)
    training.wait()
    who = identity.read(ready / "checkpoints")
    assert who is not None and known_run(ready / "tracking", who.key, config.tracking.uri) == {}
    if next_one == "track":
        sync(config, None)
    else:
        write_config(config, ready / "other/config.yaml")
        with start(config, ready / "other", "single"):
            pass
    store = Store(config.tracking.uri, ready / "tracking")
    run = store.client.get_run(store.run_id(who.key))
    assert (run.info.run_name, run.info.status) == ("ssgd-4", "KILLED")
    assert run.data.params["run.learners"] == "4" and run.info.end_time >= run.info.start_time


def test_follower_that_is_too_slow(ready: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not waited for: how training ended waits in the spool."""
    config = new_training(ready)
    monkeypatch.setattr(follower, "LAST_UPLOAD_SECONDS", 0.0)
    with start(config, ready):
        pass
    sync(config, None)
    who = identity.read(ready / "checkpoints")
    assert who is not None
    store = Store(config.tracking.uri, ready / "tracking")
    assert store.client.get_run(store.run_id(who.key)).info.status == "FINISHED"
    assert keys_waiting(ready / "tracking") == []


def _children(pid: int) -> list[int]:
    import psutil

    return [child.pid for child in psutil.Process(pid).children()]


def test_training_goes_on_without_a_server_and_is_uploaded_later(
    ready: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{closed.getsockname()[1]}"
    config = new_training(ready, tracking={"uri": dead, "every_seconds": 0.2})
    rows = metric_rows("ssgd-4")
    with start(config, ready):
        write_rows(ready / "run/metrics.jsonl", rows)
    errors = capfd.readouterr().err
    assert errors.count("\n") == 1 and "no server answers" in errors and "--upload" in errors
    (ready / "run/metrics.jsonl").unlink()  # all is in the spool
    alive = make_config(ready)
    assert _upload(alive) == 0 and "uploaded 1 runs" in capfd.readouterr().out
    who = identity.read(ready / "checkpoints")
    assert who is not None
    assert curve(alive, who.key, "loss") == list(range(5, 81, 5))
    assert _upload(alive) == 0 and "nothing waits" in capfd.readouterr().out


def test_sync_of_a_finished_config(ready: Path) -> None:
    config = write_results(ready)
    write(config, ready / "demo/wer.md")
    tracked = sync(config, ready / "tracked.json")
    assert [run.run for run in tracked] == list(RUNS) and all(run.mlflow_run for run in tracked)
    written = json.loads((ready / "tracked.json").read_text())
    assert [run["mlflow_run"] for run in written["runs"]] == [run.mlflow_run for run in tracked]
    sync(config, None)  # nothing new: nothing twice
    store = Store(config.tracking.uri, ready / "tracking")
    experiment = store.client.get_experiment_by_name("demo").experiment_id
    runs = store.client.search_runs([experiment])
    kinds = sorted(run.data.tags["kind"] for run in runs)
    assert kinds == ["scoring"] * 3 + ["training"] * 3
    training = store.client.get_run(tracked[0].mlflow_run)
    assert training.data.metrics["WER/swb"] == pytest.approx(6.0)
    assert training.data.metrics["WER/ch"] == pytest.approx(18.75)
    artifacts = {item.path for item in store.client.list_artifacts(training.info.run_id, "report")}
    assert artifacts == {f"report/{name}" for name in TABLES}
    second = store.client.get_run(tracked[1].mlflow_run).data.metrics
    assert second["significance/swb_minus_single"] == pytest.approx(0.2)
    assert second["significance/swb_low"] < 6.2 < second["significance/swb_high"]
    assert 0 < second["significance/swb_p_against_single"] <= 1
    scoring = [run for run in runs if run.data.tags.get("mlflow.parentRunId")]
    assert len(scoring) == 3 and all("tuned.lm_weight" in run.data.params for run in scoring)
    assert tracked_runs(config) == tracked
    versions = store.client.search_model_versions("name = 'demo-single'")
    assert len(versions) == 1 and versions[0].run_id == training.info.run_id
    write_scores(config, "single")  # same counts: the same scoring
    sync(config, None)
    assert len(store.client.search_runs([experiment])) == 6


def test_registered_model_answers(tmp_path: Path) -> None:
    import numpy as np
    import torch
    from tracking_data import write_model

    from hadpsgd.models.build import load_model
    from hadpsgd.tracking import registry

    config = make_config(tmp_path)
    write_model(tmp_path / "final.pt", config)
    registry.save(tmp_path / "model", tmp_path / "final.pt")
    code = """
import sys, numpy, mlflow
model = mlflow.pyfunc.load_model(sys.argv[1])
example = model.input_example
print(model.metadata.signature.inputs, file=sys.stderr)
numpy.save(sys.argv[2], model.predict(example))
"""
    out = tmp_path / "scores.npy"
    command = [sys.executable, "-c", code, str(tmp_path / "model"), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    assert "float32" in done.stderr
    model, meta = load_model(tmp_path / "final.pt")
    with torch.inference_mode():
        logits = model(torch.as_tensor(registry.example(meta)))
    wanted = torch.log_softmax(logits, -1) - meta.log_priors
    np.testing.assert_allclose(np.load(out), wanted.numpy(), atol=1e-6)


def test_compare_here_and_in_mlflow(ready: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_results(ready)
    file = str(ready / "demo/config.yaml")
    assert cli.main(["compare", "single", "ssgd-4", "--config", file]) == 0
    assert "`hadpsgd track` sends them" in capsys.readouterr().out
    tracked = sync(config, None)
    assert cli.main(["compare", "--config", file]) == 0
    out = capsys.readouterr().out
    assert "run.super_learner" in out and "training.batch" not in out
    assert "6.00 % (60/1000)" in out and "19.12 % (153/800)" in out
    assert "/#/compare-runs?runs=" in out and all(run.mlflow_run in out for run in tracked)
    ids = [run.mlflow_run for run in tracked[:2]]
    assert cli.main(["compare", *ids, "demo/hadpsgd-2x2", "--config", file]) == 0
    stored = capsys.readouterr().out
    assert "run.super_learner" in stored and "6.2" in stored
    assert cli.main(["compare", "single", "--config", file]) == 2
    assert cli.main(["compare", "single", "nope", "--config", file]) == 2
    assert cli.main(["compare", "single", "0" * 32, "--config", file]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 3 and "There are: single, ssgd-4, hadpsgd-2x2" in errors[1]


def test_tracking_can_be_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/env.db")
    config = write_results(tmp_path)
    config = config.model_copy(update={"tracking": Tracking(uri="none")})
    file = write_config(config, tmp_path / "config.yaml")
    (tmp_path / "run").mkdir()
    with start(config, tmp_path):
        write_rows(tmp_path / "run/metrics.jsonl", metric_rows("ssgd-4"))
    assert (tmp_path / "run/provenance.json").exists()
    for mode in ([], ["--upload"], ["--check"]):
        assert cli.main(["track", "--config", str(file), *mode]) == 0
    assert not list(tmp_path.glob("**/*.db")) and not list(tmp_path.glob("tracking/*/*"))


def test_full_disk_under_the_spool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    config = make_config(tmp_path, tracking={"uri": "http://127.0.0.1:9"})
    recorder = Recorder(Connection(config), "k")
    assert not recorder.send([loss(range(2))])
    error = capsys.readouterr().err
    assert "the disk is full" in error and error.count("\n") == 1
