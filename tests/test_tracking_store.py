"""MLflow on sqlite: what is written, once; finished configs, models and comparisons in it."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import RESOURCE_DOES_NOT_EXIST
from mlflow.utils.validation import MAX_METRICS_PER_BATCH
from tracking_data import (
    ERRORS,
    RUNS,
    make_config,
    write_results,
    write_rows,
    write_scores,
)
from tracking_store import steps

from hadpsgd import cli
from hadpsgd.config import run_key
from hadpsgd.errors import UserError
from hadpsgd.reports import compare
from hadpsgd.reports.command import write
from hadpsgd.reports.findings import Findings
from hadpsgd.scoring.bundle import export as bundle_export
from hadpsgd.scoring.bundle.export import Run
from hadpsgd.tracking import writer
from hadpsgd.tracking.events import Begin, Event, Finish, Metrics, Params, Point, Tags
from hadpsgd.tracking.failures import NotStoredError
from hadpsgd.tracking.recorder import Connection, Recorder
from hadpsgd.tracking.spool import keys_waiting
from hadpsgd.tracking.store import Store
from hadpsgd.tracking.sync import TABLES, sync, tracked_runs
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


def test_sync_of_a_finished_config(mlflow_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_results(mlflow_folder)
    write(Findings.of(config), mlflow_folder / "demo/wer.md")
    tracked = sync(config, mlflow_folder / "tracked.json")
    told = capsys.readouterr().err
    assert told.count("the network alone is logged") == 3 and "HCLG.fst: missing" in told
    assert [run.run for run in tracked] == list(RUNS) and all(run.mlflow_run for run in tracked)
    written = json.loads((mlflow_folder / "tracked.json").read_text())
    assert [run["mlflow_run"] for run in written["runs"]] == [run.mlflow_run for run in tracked]
    sync(config, None)  # nothing new: nothing twice
    store = Store(config.tracking.uri, mlflow_folder / "tracking")
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
    assert second["WER/swb"] == pytest.approx(6.2)
    tags = store.client.get_run(tracked[1].mlflow_run).data.tags
    assert tags["difference.swb"].startswith("+0.200 from single, p 0.")
    low, high = map(float, tags["interval.swb"].split(" .. "))
    assert low < 6.2 < high
    assert json.loads(tags["errors.ch"]) == {"words": 800, "sub": 92, "ins": 20, "del": 40}
    scoring = [run for run in runs if run.data.tags.get("mlflow.parentRunId")]
    assert len(scoring) == 3 and all("tuned.lm_weight" in run.data.params for run in scoring)
    assert tracked_runs(config) == tracked
    versions = store.client.search_model_versions("name = 'demo-single'")
    assert len(versions) == 1 and versions[0].run_id == training.info.run_id
    assert (
        versions[0].description == "Word error rates of single: dev 5.00 %, ch 18.75 %, swb 6.00 %"
    )
    champion = store.client.get_model_version_by_alias("demo", "champion")
    assert champion.tags == {"run": "single", "WER/dev": "5.00", "takes": "features"}
    write_scores(config, "single")  # same counts: the same scoring
    sync(config, None)
    assert len(store.client.search_runs([experiment])) == 6
    assert training.data.tags["status"] == "finished"
    # the column Models of the page of runs
    (output,) = training.outputs.model_outputs
    logged = store.client.get_logged_model(output.model_id)
    assert logged.status == "READY" and logged.tags["takes"] == "features"
    assert {m.key: m.value for m in logged.metrics}["WER/swb"] == pytest.approx(6.0)
    assert versions[0].source == logged.artifact_location
    links = json.loads(logged.tags["mlflow.modelVersions"])
    assert sorted(link["name"] for link in links) == ["demo", "demo-single"]


def test_champion_is_the_best_on_dev(mlflow_folder: Path) -> None:
    config = write_results(mlflow_folder)
    sync(config, None)
    client = Store(config.tracking.uri, mlflow_folder / "tracking").client

    def champion() -> tuple[str, str]:
        found = client.get_model_version_by_alias("demo", "champion")
        return str(found.version), client.get_run(found.run_id).info.run_name

    # single and hadpsgd-2x2 have 45 errors on dev, ssgd-4 has 46: the first one stays
    assert champion() == ("1", "single")
    better = ERRORS["ssgd-4"] | {"dev": (20, 5, 10)}
    write_scores(config, "ssgd-4", better)
    sync(config, None, run="ssgd-4")
    assert champion() == ("2", "ssgd-4")
    sync(config, None, run="single")
    assert champion() == ("2", "ssgd-4")
    write_scores(config, "ssgd-4")
    sync(config, None, run="ssgd-4")
    assert champion() == ("1", "single")
    assert len(client.search_model_versions("name = 'demo'")) == 2
    assert len(client.search_model_versions("name = 'demo-ssgd-4'")) == 3


def test_a_champion_that_somebody_deleted(mlflow_folder: Path) -> None:
    """The next best takes its place, and nothing waits."""
    config = write_results(mlflow_folder)
    sync(config, None)
    client = Store(config.tracking.uri, mlflow_folder / "tracking").client

    def champion() -> Any:
        return client.get_model_version_by_alias("demo", "champion")

    gone = client.get_run(champion().run_id)
    assert gone.info.run_name == "single"
    client.delete_logged_model(gone.data.tags["model.id"])
    sync(config, None, run="ssgd-4")
    assert client.get_run(champion().run_id).info.run_name == "hadpsgd-2x2"
    assert not keys_waiting(mlflow_folder / "tracking")


def test_other_development_sets_are_not_compared(mlflow_folder: Path) -> None:
    config = write_results(mlflow_folder)
    sync(config, None)
    client = Store(config.tracking.uri, mlflow_folder / "tracking").client
    other = mlflow_folder / "demo/corpus/data/dev/text"
    other.parent.mkdir(parents=True, exist_ok=True)
    other.write_text("other speech\n")
    runs = {run.run: run.mlflow_run for run in tracked_runs(config)}
    starts = {name: client.get_run(run).info.start_time for name, run in runs.items()}
    newest = max(starts, key=starts.__getitem__)
    worse = ERRORS[newest] | {"dev": (200, 5, 10)}
    write_scores(config, newest, worse)
    sync(config, None, run=newest)
    found = client.get_model_version_by_alias("demo", "champion")
    assert client.get_run(found.run_id).info.run_name == newest


def test_a_model_that_the_store_refuses(
    mlflow_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is told of in a line, and the other records go on; without a connection they wait."""
    config = write_results(mlflow_folder)
    sync(config, None, run="single")

    def refuse(*_: object) -> None:
        raise MlflowException("no such thing", error_code=RESOURCE_DOES_NOT_EXIST)

    def lost(*_: object) -> None:
        raise MlflowException("API request failed: Max retries exceeded")

    monkeypatch.setattr(writer, "register", refuse)
    capsys.readouterr()
    sync(config, None, run="single")
    error = capsys.readouterr().err
    assert "demo-single: the model is not registered (" in error and error.count("\n") == 1
    assert not keys_waiting(mlflow_folder / "tracking")
    monkeypatch.setattr(writer, "register", lost)
    sync(config, None, run="single")
    assert keys_waiting(mlflow_folder / "tracking")


def test_a_model_of_a_former_version_is_not_logged_again(mlflow_folder: Path) -> None:
    config = write_results(mlflow_folder)
    final = mlflow_folder / "demo/runs" / run_key(config, "single") / "final.pt"
    sync(config, None, run="single")
    client = Store(config.tracking.uri, mlflow_folder / "tracking").client
    run = tracked_runs(config)[0].mlflow_run
    client.delete_tag(run, "model.checksum")
    client.set_tag(run, "model.sha256", hashlib.sha256(final.read_bytes()).hexdigest())
    sync(config, None, run="single")
    assert len(client.search_model_versions("name = 'demo-single'")) == 1
    client.set_tag(run, "model.sha256", "0" * 64)
    sync(config, None, run="single")
    assert len(client.search_model_versions("name = 'demo-single'")) == 2


def test_a_model_has_the_settings_of_its_scores(
    mlflow_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not those with which its training began."""
    config = write_results(mlflow_folder)
    beams: list[float] = []

    def export(run: Run, *_: object, **__: object) -> None:
        beams.append(run.config.decoding.beam)
        raise UserError("no bundle")

    monkeypatch.setattr(bundle_export, "export", export)
    sync(config, None, run="single")
    decoding = config.decoding.model_copy(update={"beam": config.decoding.beam + 5})
    again = config.model_copy(update={"decoding": decoding})
    assert run_key(again, "single") == run_key(config, "single")
    sync(again, None, run="single")
    sync(again, None, run="single")
    assert beams == [config.decoding.beam, decoding.beam]


def test_a_model_waits_for_its_scores(
    mlflow_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_results(mlflow_folder)
    scored = mlflow_folder / "demo/score" / run_key(config, "single")
    (scored / "swb").rename(mlflow_folder / "swb")
    sync(config, None, run="single")
    assert "its model is logged once all its sets are scored" in capsys.readouterr().err
    client = Store(config.tracking.uri, mlflow_folder / "tracking").client
    assert not client.search_model_versions("name = 'demo-single'")
    (mlflow_folder / "swb").rename(scored / "swb")
    sync(config, None, run="single")
    assert len(client.search_model_versions("name = 'demo-single'")) == 1


def test_a_run_that_diverged_says_so_in_mlflow(mlflow_folder: Path) -> None:
    """Its loss was NaN; it has no model."""
    config = write_results(mlflow_folder)
    key = run_key(config, "single")
    shutil.rmtree(mlflow_folder / "demo/score" / key)
    summary = mlflow_folder / "demo/runs" / key / "summary.json"
    summary.write_text(json.dumps({"diverged": "gradient of learner 0 is not finite at step 12"}))
    row = {"step": 85, "epoch": 4.2, "loss": float("nan"), "time": 1_790_000_100.0}
    write_rows(summary.parent / "metrics.jsonl", [row])
    tracked = sync(config, None)
    client = Store(config.tracking.uri, mlflow_folder / "tracking").client
    run = client.get_run(tracked[0].mlflow_run)
    assert run.info.status == "FAILED"
    assert run.data.tags["status"] == "diverged" and "step 12" in run.data.tags["status_why"]
    assert not any(name.startswith("WER/") for name in run.data.metrics)
    assert not client.search_model_versions("name = 'demo-single'")
    assert client.get_run(tracked[1].mlflow_run).info.status == "FINISHED"
    column = compare.find(tracked[0].mlflow_run, config)[0]
    assert column.metrics["status"] == "diverged"


def test_compare_here_and_in_mlflow(
    mlflow_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_results(mlflow_folder)
    file = str(mlflow_folder / "demo/config.yaml")
    assert cli.main(["compare", "single", "ssgd-4", "--config", file]) == 0
    assert "`hadpsgd track` sends them" in capsys.readouterr().out
    tracked = sync(config, None)
    assert cli.main(["compare", "--config", file]) == 0
    out = capsys.readouterr().out
    assert "run.super_learner" in out and "training.batch" not in out
    assert "6.00 % (60/1000)" in out and "19.12 % (153/800)" in out
    assert "mlflow server " in out and " --workers 1 " in out  # four may never be there at once
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
