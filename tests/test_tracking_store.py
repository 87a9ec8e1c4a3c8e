"""MLflow on sqlite: what is written, once; stores that cannot be reached, and a full disk."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from mlflow.utils.validation import MAX_METRICS_PER_BATCH
from tracking_data import make_config
from tracking_store import steps

from hadpsgd.tracking.events import Begin, Event, Finish, Metrics, Params, Point, Tags
from hadpsgd.tracking.failures import NotStoredError
from hadpsgd.tracking.recorder import Connection, Recorder
from hadpsgd.tracking.store import Store
from hadpsgd.tracking.uri import database_file

pytestmark = pytest.mark.usefixtures("no_tracking_uri")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, empty_mlflow: Path) -> Store:
    folder = tmp_path_factory.mktemp("store")
    shutil.copyfile(empty_mlflow, folder / "mlflow.db")
    return Store(f"sqlite:///{folder}/mlflow.db", folder / "spool")


def begin(name: str = "r") -> list[Event]:
    return [Begin(name=name, experiment="x", time_ms=1000)]


def loss(steps: range, value: float = 1.0, time_ms: int = 5000) -> Metrics:
    points = [Point(name="loss", value=value, step=s, time_ms=time_ms + s) for s in steps]
    return Metrics(points=points)


def test_each_step_once_over_a_resume(store: Store) -> None:
    """Killed at step 29, resumed from a checkpoint at 19, by a process that knows nothing."""
    store.apply("resumed", [*begin(), loss(range(30))])
    fresh = Store(store.uri, store._spool)
    fresh.apply("resumed", [*begin(), loss(range(20, 50), value=2.0, time_ms=9000)])
    assert fresh.run_id("resumed") == store.run_id("resumed")
    assert sorted(steps(store, "resumed")) == list(range(50))


@pytest.mark.parametrize("name", ["/Shared/swb", "../../up", "..", "a/../../../out", "ä b"])
def test_no_experiments_name_leads_out_of_the_artifacts(store: Store, name: str) -> None:
    """Databricks' begin with /; a file's artifacts lie beside it all the same."""
    store.apply(f"of {name}", [Begin(name="r", experiment=name, time_ms=1000)])
    found = store.client.get_experiment_by_name(name)
    place = Path(unquote(found.artifact_location.removeprefix("file://"))).resolve()
    file = database_file(store.uri)
    assert file is not None and place.parent == (file.parent / "mlartifacts").resolve()


def test_a_scoring_follows_its_training(store: Store) -> None:
    """Into its experiment, and when somebody has deleted it and it was begun anew."""

    def scoring() -> list[Event]:
        return [Begin(name="s", experiment="later", time_ms=1000, parent="training")]

    store.apply("training", begin())
    store.apply("scoring", scoring())
    first = store.run_id("training")
    run = store.client.get_run(store.run_id("scoring"))
    assert run.info.experiment_id == store.experiment("x")
    assert run.data.tags["mlflow.parentRunId"] == first
    store.client.delete_run(first)
    fresh = Store(store.uri, store._spool)
    fresh.apply("training", begin())
    fresh.apply("scoring", scoring())
    assert fresh.run_id("training") != first
    assert fresh.run_id("scoring") == run.info.run_id
    again = fresh.client.get_run(run.info.run_id)
    assert again.data.tags["mlflow.parentRunId"] == fresh.run_id("training")


def test_more_points_than_one_call_takes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server refuses more than 1000 (MLflow's MAX_METRICS_PER_BATCH); a file takes any."""
    sizes: list[int] = []
    send = store.client.log_batch

    def log_batch(run_id: str, **parts: Any) -> None:
        sizes.extend(len(part) for name, part in parts.items() if name == "metrics")
        send(run_id, **parts)

    monkeypatch.setattr(store.client, "log_batch", log_batch)
    store.apply("long", [*begin(), loss(range(2500))])
    assert sorted(steps(store, "long")) == list(range(2500))
    assert sum(sizes) == 2500 and max(sizes) <= MAX_METRICS_PER_BATCH


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
