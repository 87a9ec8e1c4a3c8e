"""`hadpsgd report`: wer.md, and beside it stages.md, report.html and the pictures."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from hadpsgd.config import Config, load
from hadpsgd.errors import UserError
from hadpsgd.files import write_text
from hadpsgd.reports import curves, html, significance, stages, table
from hadpsgd.tracking.results import read_results, results_folder
from hadpsgd.tracking.sync import tracked_runs

FILES = ("stages.md", "report.html", significance.FILE, "curves.png", "learning_rate.png")
"""What is written beside wer.md."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--config", type=Path, required=True, help="the config")
    parser.add_argument("--out", type=Path, help=f"wer.md to write; with it {', '.join(FILES)}")
    parser.add_argument("--show", action="store_true", help="print the table")
    parser.add_argument(
        "--partial", action="store_true", help="accept runs that are not finished or scored"
    )


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    config = load(args.config)
    if not (args.out or args.show):
        raise UserError("give --out FILE, --show, or both")
    if args.out:
        write(config, args.out, partial=args.partial)
    if args.show:
        results = read_results(config, partial=args.partial)
        tests = significance.of_config(config, results)
        print(table.error_rates(config, results, tracked_runs(config)).markdown())
        print(significance.text([result.run.id for result in results], tests), end="")
        print(f"\n{results_folder(config) / 'report.html'}")
    return 0


def write(config: Config, out: Path, *, partial: bool = False) -> None:
    """Write wer.md at `out` and the other files beside it.

    Raises:
        UserError: a result is missing (unless `partial`) or broken.
    """
    results = read_results(config, partial=partial)
    tracked = tracked_runs(config)
    tests = significance.of_config(config, results)
    labels = [result.run.id for result in results]
    jobs = stages.read(results_folder(config) / "benchmarks")
    folder = out.parent
    write_text(folder / "stages.md", stages.page(config.name, jobs))
    write_text(folder / "report.html", html.page(config, results, tracked, jobs, tests))
    curves.write_png(curves.losses(results), folder / "curves.png")
    curves.write_png(curves.learning_rates(config, results), folder / "learning_rate.png")
    write_text(folder / significance.FILE, json.dumps(tests, indent=2) + "\n")
    # last: it says that all is there
    write_text(out, table.page(config, results, tracked, significance.text(labels, tests)))
