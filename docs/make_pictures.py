"""Pictures of a finished demo for the documentation.

    python docs/make_pictures.py --config results/demo/config.yaml

writes docs/demo-{seconds,curves}.png, drawn from the runs' metrics; where the package graphviz is
installed, docs/rulegraph.png; and where chromium is, docs/pictures/{report,mlflow-compare}.png.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import browser  # noqa: E402
from servers import mlflow_server  # noqa: E402

from hadpsgd.config import Config, load  # noqa: E402
from hadpsgd.reports import compare, curves, seconds  # noqa: E402
from hadpsgd.tracking.results import read_results, results_folder  # noqa: E402
from hadpsgd.tracking.uri import database_file, tracking_uri  # noqa: E402

WIDTH, HEIGHT, ASSISTANT = 1530, 1100, 530


def main() -> None:
    """Draw and take all pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=ROOT / "docs")
    args = parser.parse_args()
    config = load(args.config)
    drawn(config, args.out)
    if shutil.which("dot"):
        rules(args.config, args.out / "rulegraph.png")
    else:
        print("no graphviz: the rules were not drawn", file=sys.stderr)
    if browser.PROGRAM:
        taken(config, args.out / "pictures")
    else:
        print("no chromium: pages were not photographed", file=sys.stderr)


def drawn(config: Config, out: Path) -> None:
    """The curves; against seconds only those of virtual time, which depend on no machine's load."""
    results = read_results(config)
    virtual = [result for result in results if result.run.simulated]
    out.mkdir(parents=True, exist_ok=True)
    curves.write_png(seconds.figure(virtual), out / "demo-seconds.png")
    curves.write_png(curves.losses(results), out / "demo-curves.png")


def rules(config: Path, picture: Path) -> None:
    """The workflow's rules and their order."""
    snakemake = ["snakemake", "--snakefile", str(ROOT / "Snakefile"), "--rulegraph"]
    told = subprocess.run([*snakemake, "--configfile", config], check=True, capture_output=True)
    subprocess.run(["dot", "-Tpng", "-Gdpi=80", "-o", picture], check=True, input=told.stdout)
    with_256_colours(Image.open(picture)).save(picture)


def with_256_colours(picture: Image.Image) -> Image.Image:
    """A smaller file."""
    return picture.convert("P", palette=Image.Palette.ADAPTIVE)


def taken(config: Config, out: Path) -> None:
    """Pages as a browser shows them."""
    out.mkdir(parents=True, exist_ok=True)
    page = (results_folder(config) / "report.html").absolute().as_uri()
    browser.screenshot(page, out / "report.png", 1200, 1700)
    runs = [run for entry in config.training.members for run in compare.find(entry.id, config)]
    uri = tracking_uri(config)
    file = database_file(uri)  # the server runs elsewhere
    with (
        tempfile.TemporaryDirectory() as scratch,
        mlflow_server(f"sqlite:///{file}" if file else uri, Path(scratch)) as server,
    ):
        picture = out / "mlflow-compare.png"
        browser.screenshot(compare.link(runs, server), picture, WIDTH + ASSISTANT, HEIGHT)
        without_assistant(picture)


def without_assistant(picture: Path) -> None:
    """Cut off MLflow's chat at the right, which a fresh browser shows."""
    with_256_colours(Image.open(picture).crop((0, 0, WIDTH, HEIGHT))).save(picture)


if __name__ == "__main__":
    main()
