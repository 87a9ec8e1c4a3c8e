"""Pictures of a finished config for the documentation, taken by headless Chromium.

    python docs/make_pictures.py --config results/demo/config.yaml

writes docs/pictures/{report,mlflow-runs,mlflow-compare}.png. Needs the package chromium.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import browser  # noqa: E402
from servers import mlflow_server  # noqa: E402

from hadpsgd.config import load  # noqa: E402
from hadpsgd.reports import compare  # noqa: E402
from hadpsgd.tracking.results import results_folder  # noqa: E402
from hadpsgd.tracking.uri import tracking_uri  # noqa: E402


def main() -> None:
    """Take all pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "pictures")
    args = parser.parse_args()
    config = load(args.config)
    args.out.mkdir(parents=True, exist_ok=True)
    page = (results_folder(config) / "report.html").absolute().as_uri()
    browser.screenshot(page, args.out / "report.png", 1200, 1700)
    runs = [run for entry in config.training.runs for run in compare.find(entry.id, config)]
    with (
        tempfile.TemporaryDirectory() as scratch,
        mlflow_server(tracking_uri(config), Path(scratch)) as server,
    ):
        runs_page = f"{server}/#/experiments/{runs[0].mlflow_experiment}/runs"
        charts = f"{runs_page}?compareRunsMode=CHART"
        browser.screenshot(charts, args.out / "mlflow-runs.png", 1800, 1100)
        comparison = compare.link(runs, server)
        browser.screenshot(comparison, args.out / "mlflow-compare.png", 1800, 1100)


if __name__ == "__main__":
    main()
