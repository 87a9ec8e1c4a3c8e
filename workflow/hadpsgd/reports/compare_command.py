"""`hadpsgd compare RUN RUN ...`: what differs, what came out, and MLflow's comparison."""

from __future__ import annotations

import argparse
import webbrowser
from pathlib import Path

from hadpsgd.config import beside_rows, load
from hadpsgd.errors import UserError
from hadpsgd.reports import compare
from hadpsgd.tracking.uri import tracking_uri


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="RUN",
        help="a run of the config or a row of several seeds, CONFIG/RUN, CONFIG/ for all of its "
        "rows, or an MLflow run id; all rows of the config where none is named",
    )
    parser.add_argument("--config", type=Path, required=True, help="names results and store")
    parser.add_argument("--open", action="store_true", help="open MLflow's comparison")


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    config = load(args.config)
    names = args.runs or [*config.training.rows, *beside_rows(config)]
    runs = [run for name in names for run in compare.find(name, config)]
    if len(runs) == 1:  # of a row of several seeds, its runs
        runs = list(compare.each_run(runs))
    if len(runs) < 2:
        raise UserError(f"a comparison needs two runs, not {len(runs)}")
    print(compare.page(runs))
    uri = tracking_uri(config)
    link = compare.link(runs, uri)
    if not link:
        print("Fewer than two of them are in MLflow: `hadpsgd track` sends them.")
        return 0
    if command := compare.server_command(uri):
        print(f"Start the server:    {command}")
    print(f"MLflow's comparison: {link}")
    if args.open:
        webbrowser.open(link)
    return 0
