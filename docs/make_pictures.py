"""Pictures of a finished demo for the documentation.

    python docs/make_pictures.py --config results/demo/config.yaml

writes docs/demo-{seconds,curves}.png, drawn from the runs' metrics, and where the package graphviz
is installed, docs/rulegraph.png. Pictures of pages: `make_screenshots.py`.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from PIL import Image

from hadpsgd.config import Config, load
from hadpsgd.reports import curves, seconds
from hadpsgd.tracking.results import read_results

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Draw all pictures."""
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


if __name__ == "__main__":
    main()
