"""Our report as a browser shows it."""

from __future__ import annotations

from pathlib import Path

import browser
import matplotlib.image
import numpy as np
import pytest
from numpy.typing import NDArray
from tracking_data import write_results

from hadpsgd.reports.command import write
from hadpsgd.reports.findings import Findings

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
    with browser.page(1200, 2000) as tab:
        tab.open(address)
        light = pixels(tab.picture(tmp_path / "light.png"))
        tab.size(1200, 2000, dark=True)
        dark = pixels(tab.picture(tmp_path / "dark.png"))
    assert light.shape == dark.shape == (2000, 1200, 3)
    assert light[5, 5].mean() > 0.9 and dark[5, 5].mean() < 0.2
    for picture in (light, dark):  # the curves' colours are there in both
        for wanted in ("#2b85d0", "#d1495b", "#2a9d6f"):
            rgb = [int(wanted[i : i + 2], 16) / 255 for i in (1, 3, 5)]
            assert (np.abs(picture - rgb).max(-1) < 0.02).sum() > 20, wanted
