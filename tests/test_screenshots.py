"""Pictures of pages for the documentation: which pages, and that they show what they are for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import browser
import pytest
from PIL import Image
from tracking_data import RUNS, make_config, write_config, write_results

from hadpsgd.config import Config, run_key
from hadpsgd.errors import UserError
from hadpsgd.tracking.store import Store
from hadpsgd.tracking.sync import sync

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs"))

import make_screenshots as shots  # noqa: E402

pytestmark = pytest.mark.usefixtures("no_tracking_uri")
SERVER = "http://127.0.0.1:5000"


def finished(folder: Path) -> Config:
    """Three runs, their data and pages of errors, and an MLflow store with all that."""
    config = write_results(folder)
    base = folder / config.name
    for run in RUNS:
        write_config(config, base / "runs" / run_key(config, run) / "config.yaml")
        errors = base / "errors" / run_key(config, run)
        errors.mkdir(parents=True)
        (errors / "index.html").write_text(f"<h1>{run}</h1><h3>Substituted</h3>")
    (base / "index.html").write_text("<h1>single</h1>")
    sync(config, None)
    return config


def test_pages_are_found_in_the_store_and_in_the_results(mlflow_folder: Path) -> None:
    config = finished(mlflow_folder)
    client = Store(config.tracking.uri, mlflow_folder / "spool").client
    runs, model, comparison = shots.mlflow_pages(config, client, SERVER)
    [experiment] = client.search_experiments(filter_string="name = 'demo'")
    found = client.search_runs([experiment.experiment_id], "tags.kind = 'training'")
    assert runs.address == f"{SERVER}/#/experiments/{experiment.experiment_id}/runs"
    assert model.address == f"{SERVER}/#/models/demo/versions/1"
    assert {run.info.run_id in unquote(comparison.address) for run in found} == {True}
    assert len(found) == len(RUNS)
    report, errors = shots.report_pages(config)
    assert errors.address.endswith(f"errors/{run_key(config, 'single')}/index.html")
    assert report.address.endswith("demo/index.html")


def test_what_is_missing_is_named(mlflow_folder: Path) -> None:
    config = make_config(mlflow_folder)
    client = Store(config.tracking.uri, mlflow_folder / "spool").client
    with pytest.raises(UserError, match="no experiment 'demo'"):
        shots.mlflow_pages(config, client, SERVER)
    with pytest.raises(UserError, match="no such page"):
        shots.report_pages(config)
    with pytest.raises(UserError, match="no such page"):
        shots.site_page(mlflow_folder)


@pytest.mark.slow
@pytest.mark.skipif(not browser.PROGRAM, reason="Chromium is not installed")
def test_the_command_takes_all_pictures(mlflow_folder: Path) -> None:
    config = finished(mlflow_folder)
    (mlflow_folder / "README.html").write_text("<h1>Start</h1>")
    before = (mlflow_folder / "mlflow.db").read_bytes()
    command = [sys.executable, str(ROOT / "docs/make_screenshots.py")]
    command += ["--config", str(write_config(config, mlflow_folder / "demo.yaml"))]
    command += ["--site", str(mlflow_folder), "--out", str(mlflow_folder / "out")]
    subprocess.run(command, check=True)
    pictures = {file.stem: file for file in (mlflow_folder / "out").iterdir()}
    assert pictures.keys() == {
        *("mlflow-runs", "mlflow-model", "mlflow-compare", "report", "errors", "site")
    }
    assert all(file.stat().st_size < 200 << 10 for file in pictures.values())
    with Image.open(pictures["mlflow-compare"]) as picture:
        assert picture.size == (1530, 1100) and len(picture.getcolors() or []) > 50
    assert (mlflow_folder / "mlflow.db").read_bytes() == before
