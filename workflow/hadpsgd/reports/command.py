"""`hadpsgd report`: wer.md, and beside it stages.md, report.html and the pictures.

Any time: runs that are not finished are rows that say so.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from hadpsgd.config import load
from hadpsgd.ending import Former
from hadpsgd.errors import UserError
from hadpsgd.files import write_text
from hadpsgd.reports import curves, html, seconds, significance, stages, table
from hadpsgd.reports.findings import Findings
from hadpsgd.tracking import provenance
from hadpsgd.tracking.results import results_folder

PAGE = "report.html"
"""All on one page, which needs no other file: for MLflow and Snakemake's report."""
INDEX = "index.html"
"""The same with links to the pages of errors."""
ERRORS, COMPARED = "errors/{}/index.html", "compared/{}/index.html"
"""Pages of a run's errors, and of them beside those of the first run that is decoded."""
PICTURE = "seconds.png"
FILES = ("stages.md", PAGE, significance.FILE, "curves.png", PICTURE, "learning_rate.png")
"""What is written beside wer.md."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--config", type=Path, required=True, help="the config")
    parser.add_argument("--out", type=Path, help=f"wer.md to write; with it {', '.join(FILES)}")
    parser.add_argument(
        "--index", type=Path, help=f"page to write: {PAGE} with links to the pages of errors"
    )
    parser.add_argument("--show", action="store_true", help="print the table")
    parser.add_argument(
        "--unfinished",
        nargs="*",
        metavar="KEY[/SET]",
        help="runs, or sets of a run, whose scores do not count: they were to be made again; "
        "without it, those that the last start of the workflow has not made",
    )


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    config = load(args.config)
    if not (args.out or args.index or args.show):
        raise UserError("give --out FILE, --index FILE or --show")
    folder = results_folder(config)
    if not folder.is_dir():
        raise UserError("no results yet", where=folder, fix="Run the workflow")
    former = Former.of(config, folder)
    told = former.unfinished if args.unfinished is None else args.unfinished
    found = Findings.of(config, told)
    if args.out:
        write(found, args.out)
    if args.index:
        links = (error_pages(found, args.index.parent, name) for name in (ERRORS, COMPARED))
        write_text(args.index, html.page(found, *links))
    if args.show:
        print(shown(found), *pages(folder, former), sep="\n")
    return 0


def pages(folder: Path, former: Former) -> Iterator[str]:
    """The page and the picture to look at, or that those on disk are former ones."""
    times = {
        name: (folder / name).stat().st_mtime
        for name in (INDEX, PAGE, PICTURE)
        if (folder / name).is_file()
    }
    fresh = [n for n, at in times.items() if n not in former.outputs or at >= former.began]
    of_text = [name for name in fresh if name != PICTURE]
    yield from (str(folder / name) for name in fresh if name not in of_text[1:])
    if times and not fresh:
        name = next(iter(times))
        at = time.localtime(times[name])
        yield (
            f"{folder / name} and the pages beside it are not of this table: they are of the "
            f"workflow's last run that finished, {time.strftime('%Y-%m-%d %H:%M:%S', at)}"
        )


def shown(found: Findings) -> str:
    """The table for the terminal."""
    said = table.explanations(found.rows) + _said(found)
    return f"{table.error_rates(found.config, found.rows).markdown()}{said}\n{found.differences}"


def write(found: Findings, out: Path) -> None:
    """Write wer.md at `out` and the other files beside it."""
    folder, config = out.parent, found.config
    write_text(folder / "stages.md", stages.page(config.name, found.jobs))
    write_text(folder / PAGE, html.page(found))
    curves.write_png(curves.losses(found.results), folder / "curves.png")
    curves.write_png(seconds.figure(found.results), folder / PICTURE)
    curves.write_png(curves.learning_rates(config, found.results), folder / "learning_rate.png")
    write_text(folder / significance.FILE, json.dumps(found.tests, indent=2) + "\n")
    kept = (provenance.read(result.folder) for result in found.results)
    origins = dict.fromkeys(provenance.origin(each) for each in kept if each)
    page = table.page(config, found.rows, found.differences, list(origins), _said(found))
    write_text(out, page)  # last: it says that all is there


def _said(found: Findings) -> str:
    """What is to be known of the table's numbers, as a list."""
    ends = "".join(f"- {sentence}\n" for sentence in found.ends)
    return ends + seconds.explanations(found.results)


def error_pages(found: Findings, seen_from: Path, name: str) -> dict[str, str]:
    """Addresses of the pages `name` that are there, by the key of the run."""
    folder = results_folder(found.config)
    decoded = [run for row in found.rows for run in row.runs if run.analysed]
    runs = [run for run in decoded[name == COMPARED :] if run.scores]
    pages = {run.key: folder / name.format(run.key) for run in runs}
    return {
        key: Path(os.path.relpath(page, seen_from)).as_posix()
        for key, page in pages.items()
        if page.is_file()
    }
