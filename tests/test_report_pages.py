"""Our report and MLflow's comparison as a browser shows them."""

from __future__ import annotations

from pathlib import Path

import browser
import matplotlib.image
import numpy as np
import pytest
from numpy.typing import NDArray
from servers import mlflow_server
from tracking_data import RUNS, write_results

from hadpsgd.reports import compare
from hadpsgd.reports.command import write
from hadpsgd.reports.findings import Findings
from hadpsgd.tracking.sync import sync

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not browser.PROGRAM, reason="Chromium is not installed"),
]


def pixels(file: Path) -> NDArray[np.float32]:
    """The picture as [height, width, 3], 0 to 1."""
    return matplotlib.image.imread(file)[..., :3]


def test_report_in_light_and_dark(tmp_path: Path) -> None:
    config = write_results(tmp_path)
    write(Findings.of(config), tmp_path / "demo/wer.md")
    address = (tmp_path / "demo/report.html").as_uri()
    light = pixels(browser.screenshot(address, tmp_path / "light.png", 1200, 2000))
    dark = pixels(browser.screenshot(address, tmp_path / "dark.png", 1200, 2000, dark=True))
    assert light.shape == dark.shape == (2000, 1200, 3)
    assert light[5, 5].mean() > 0.9 and dark[5, 5].mean() < 0.2
    for picture in (light, dark):  # the curves' colours are there in both
        for wanted in ("#2b85d0", "#d1495b", "#2a9d6f"):
            rgb = [int(wanted[i : i + 2], 16) / 255 for i in (1, 3, 5)]
            assert (np.abs(picture - rgb).max(-1) < 0.02).sum() > 20, wanted


def test_mlflow_compares_three_strategies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    config = write_results(tmp_path)
    sync(config, None)
    runs = [run for name in RUNS for run in compare.find(name, config)]
    with mlflow_server(config.tracking.uri, tmp_path) as server:
        address = compare.link(runs, server)
        page = browser.document(address)
    assert "Comparing 3 Runs from 1 Experiment" in page
    assert all(run.mlflow_run in page and run.label in page for run in runs)
    assert "run.super_learner" in page and "WER/swb" in page
