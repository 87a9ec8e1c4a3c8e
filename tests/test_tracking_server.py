"""MLflow servers on loopback: many writers at once, a server that is killed, PostgreSQL."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import free_port, mlflow_server, postgres, postgres_programs
from tracking_data import make_config, metric_rows, write_config, write_rows

from hadpsgd import cli
from hadpsgd.tracking import follower, identity
from hadpsgd.tracking.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
PATIENCE = 1200.0
WRITERS, STEPS = 30, 40

WRITER_PROCESSES = f"""
import os, sys, time
from pathlib import Path
import mlflow  # seconds: once, before they fork
from hadpsgd.config import load
from hadpsgd.tracking.events import Begin, Metrics, Point
from hadpsgd.tracking.recorder import Connection, Recorder

def write(number):
    recorders = [Recorder(Connection(load(Path(file))), number) for file in sys.argv[2:]]
    for recorder in recorders:
        recorder.send([Begin(name=number, experiment="race", time_ms=1)], now=True)
    for step in range({STEPS}):
        for recorder in recorders:
            recorder.send([Metrics(points=[Point(name="m", value=step, step=step, time_ms=1)])])
    for recorder in recorders:
        while not recorder.send([], now=True):
            time.sleep(1)

writers = []
for number in range(int(sys.argv[1])):
    if not (pid := os.fork()):
        write(str(number))
        os._exit(0)
    writers.append(pid)
sys.exit(any([os.waitpid(pid, 0)[1] for pid in writers]))
"""


def write_at_once(count: int, files: list[Path]) -> None:
    """So many processes write a run each to the stores of all configs."""
    command = [sys.executable, "-c", WRITER_PROCESSES, str(count), *map(str, files)]
    assert subprocess.run(command, timeout=PATIENCE, check=False).returncode == 0


@pytest.fixture(autouse=True)
def own_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(follower, "LAST_UPLOAD_SECONDS", PATIENCE)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[str]:
    """PostgreSQL where it is installed, else sqlite."""
    programs = postgres_programs()
    if programs:
        with postgres(programs) as uri:
            yield uri
    else:
        yield f"sqlite:///{tmp_path}/server.db"


def test_thirty_writers_to_a_server_and_to_one_file(database: str, tmp_path: Path) -> None:
    """All meet an empty sqlite database; nothing is lost in either store."""
    with mlflow_server(database, tmp_path) as server:
        uris = {"file": f"sqlite:///{tmp_path}/new/mlflow.db", "server": server}
        files = []
        for name, uri in uris.items():
            config = make_config(tmp_path / name, tracking={"uri": uri})
            files.append(write_config(config, tmp_path / name / "config.yaml"))
        write_at_once(WRITERS, files)
        for name, uri in uris.items():
            store = Store(uri, tmp_path / name / "tracking")
            experiments = store.client.search_experiments(filter_string="name = 'race'")
            assert len(experiments) == 1, name
            runs = store.client.search_runs([experiments[0].experiment_id])
            assert len(runs) == WRITERS, name
            for number in range(WRITERS):
                history = store.client.get_metric_history(store.run_id(str(number)), "m")
                assert sorted(point.step for point in history) == list(range(STEPS)), name


def test_server_killed_while_training(
    tmp_path: Path, database: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Training goes on; what the dead server did not take is uploaded to the next one."""
    port = free_port()
    tracking = {"uri": f"http://127.0.0.1:{port}", "every_seconds": 0.2}
    config = make_config(tmp_path, tracking=tracking)
    file = write_config(config, tmp_path / "config.yaml")
    metrics, rows = tmp_path / "run/metrics.jsonl", metric_rows("single")
    metrics.parent.mkdir()
    with follower.start(
        config, file, "single", checkpoints=tmp_path / "c", metrics=metrics, rank=0
    ):
        with mlflow_server(database, tmp_path, port):
            write_rows(metrics, rows[:8])
            _wait_until_logged(tmp_path, config.tracking.uri)
        write_rows(metrics, rows[8:])  # the server is gone, killed by signal 9
    errors = capfd.readouterr().err
    assert "no server answers" in errors and "hadpsgd track --upload" in errors
    with mlflow_server(database, tmp_path, port) as uri:
        assert cli.main(["track", "--check", "--config", str(file)]) == 0
        assert cli.main(["track", "--upload", "--config", str(file)]) == 0
        store, who = Store(uri, tmp_path / "tracking"), identity.read(tmp_path / "c")
        assert who is not None
        history = store.client.get_metric_history(store.run_id(who.key), "loss")
        assert sorted(point.step for point in history) == list(range(5, 81, 5))
        assert store.client.get_run(store.run_id(who.key)).info.status == "FINISHED"
        artifacts = store.client.list_artifacts(store.run_id(who.key), "provenance")
        assert "provenance/provenance.json" in [item.path for item in artifacts]
    assert cli.main(["track", "--check", "--config", str(file)]) == 2


def _wait_until_logged(folder: Path, uri: str) -> None:
    store, end = Store(uri, folder / "tracking"), time.monotonic() + PATIENCE
    while time.monotonic() < end:
        experiments = store.client.search_experiments(filter_string="name = 'demo'")
        if experiments:
            found = store.client.search_runs([experiments[0].experiment_id])
            if found and store.client.get_metric_history(found[0].info.run_id, "loss"):
                return
        time.sleep(0.3)
    raise TimeoutError("no point of the curve came")


def test_postgres_without_a_server(tmp_path: Path) -> None:
    """The database itself as tracking URI; four processes meet it empty."""
    programs = postgres_programs()
    if programs is None:
        pytest.skip("PostgreSQL or psycopg2 is not installed")
    with postgres(programs) as uri:
        config = make_config(tmp_path, tracking={"uri": uri})
        file = write_config(config, tmp_path / "config.yaml")
        write_at_once(4, [file])
        store = Store(uri, tmp_path / "tracking")
        for number in range(4):
            history = store.client.get_metric_history(store.run_id(str(number)), "m")
            assert sorted(point.step for point in history) == list(range(STEPS))
