"""Finished and diverged runs in MLflow: their scores, tags and files; comparisons of runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tracking_data import RUNS, write_results, write_rows, write_scores

from hadpsgd import cli
from hadpsgd.config import run_key
from hadpsgd.reports import compare
from hadpsgd.reports.command import write
from hadpsgd.reports.findings import Findings
from hadpsgd.tracking.store import Store
from hadpsgd.tracking.sync import TABLES, sync, tracked_runs

pytestmark = pytest.mark.usefixtures("no_tracking_uri")


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
