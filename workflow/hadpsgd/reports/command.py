"""`hadpsgd report`: wer.md, and beside it stages.md, report.html and the pictures.

Any time: runs that are not finished are rows that say so.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from hadpsgd.config import Config, load
from hadpsgd.errors import UserError
from hadpsgd.files import write_text
from hadpsgd.reports import curves, html, rows, significance, stages, table
from hadpsgd.tracking.results import read_results, results_folder
from hadpsgd.tracking.sync import tracked_runs

FILES = ("stages.md", "report.html", significance.FILE, "curves.png", "learning_rate.png")
"""What is written beside wer.md."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--config", type=Path, required=True, help="the config")
    parser.add_argument("--out", type=Path, help=f"wer.md to write; with it {', '.join(FILES)}")
    parser.add_argument("--show", action="store_true", help="print the table")


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    config = load(args.config)
    if not (args.out or args.show):
        raise UserError("give --out FILE, --show, or both")
    folder = results_folder(config)
    if not folder.is_dir():
        raise UserError("no results yet", where=folder, fix="Run the workflow")
    if args.out:
        write(config, args.out)
    if args.show:
        print(shown(config), end="")
        print(f"\n{folder / 'report.html'}")
    return 0


def shown(config: Config) -> str:
    """The table for the terminal."""
    results = read_results(config)
    made = rows.of_results(results, tracked_runs(config))
    tests = significance.of_config(config, results)
    said = table.explanations(made)
    return (
        f"{table.error_rates(config, made).markdown()}{said}\n"
        f"{significance.text(significance.labels(config, results), tests)}"
    )


def write(config: Config, out: Path) -> None:
    """Write wer.md at `out` and the other files beside it.

    Raises:
        UserError: a result is broken.
    """
    results = read_results(config)
    made = rows.of_results(results, tracked_runs(config))
    tests = significance.of_config(config, results)
    jobs = stages.of_config(config)
    folder = out.parent
    write_text(folder / "stages.md", stages.page(config.name, jobs))
    write_text(folder / "report.html", html.page(config, results, made, jobs, tests))
    curves.write_png(curves.losses(results), folder / "curves.png")
    curves.write_png(curves.learning_rates(config, results), folder / "learning_rate.png")
    write_text(folder / significance.FILE, json.dumps(tests, indent=2) + "\n")
    text = significance.text(significance.labels(config, results), tests)
    write_text(out, table.page(config, made, text))  # last: it says that all is there
