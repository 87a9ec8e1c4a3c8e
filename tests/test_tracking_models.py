"""Models in MLflow's registry: when one is logged, and which is the champion."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import RESOURCE_DOES_NOT_EXIST
from tracking_data import ERRORS, write_results, write_scores

from hadpsgd.config import run_key
from hadpsgd.errors import UserError
from hadpsgd.scoring.bundle import export as bundle_export
from hadpsgd.scoring.bundle.export import Run
from hadpsgd.tracking import writer
from hadpsgd.tracking.spool import keys_waiting
from hadpsgd.tracking.store import Store
from hadpsgd.tracking.sync import sync, tracked_runs

pytestmark = pytest.mark.usefixtures("no_tracking_uri")


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
