"""`hadpsgd paper`: the page of the papers' claims, from MLflow runs by id (docs/paper.md)."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from markupsafe import Markup

from hadpsgd.config import Config, load
from hadpsgd.files import atomic_folder, write_text
from hadpsgd.paper import batches, cells, learners, stragglers, times, tried, why
from hadpsgd.paper.blocks import Section
from hadpsgd.paper.wanted import check
from hadpsgd.reports import curves, html

CELLS = "cells.json"
"""Beside the pictures: the page's tables and what each picture is drawn from."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--config", type=Path, required=True, help="a config with training.grids")
    parser.add_argument("--out", type=Path, required=True, help="the page to write")
    parser.add_argument(
        "--pictures", type=Path, required=True, help=f"folder for its pictures and {CELLS}"
    )


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    config = load(args.config)
    check(config, args.config)
    write(config, sections(config), page=args.out, folder=args.pictures)
    return 0


def sections(config: Config) -> list[Section]:
    """The parts of the page; those without a grid are left out, but for that of time."""
    rows = cells.read(config)
    parts = {part: [rows[name] for name in own] for part, own in config.training.parts().items()}
    baseline, sets = rows[next(iter(config.training.rows))], list(config.tests)
    made = []
    if parts["batch"]:
        made.append(batches.section(parts["batch"], baseline, sets))
    if parts["tried"]:
        ruled = batches.by_rule(parts["batch"], baseline)
        made.append(tried.section(parts["tried"], ruled, baseline))
    if parts["learners"]:
        made.append(learners.section(parts["learners"], baseline, sets))
    made.append(times.section())
    if parts["stragglers"]:
        made.append(stragglers.section(parts["stragglers"]))
    if parts["batch"] or parts["why"]:
        made.append(why.section(parts["batch"], parts["why"]))
    return made


def write(config: Config, made: list[Section], *, page: Path, folder: Path) -> None:
    """The pictures, what they and the tables are made from, and the page, last."""
    with atomic_folder(folder) as pictures:
        for section in made:
            for picture in section.pictures:
                curves.write_png(picture.figure, pictures / f"{picture.name}.png")
        write_text(pictures / CELLS, json.dumps([_plain(each) for each in made], indent=1) + "\n")
    drawn = {
        picture.name: Markup(curves.inline_svg(picture.figure, picture.caption, name=picture.name))
        for section in made
        for picture in section.pictures
    }
    text = html.render(
        "paper.html.j2",
        name=config.name,
        synthetic=config.corpus.kind == "builtin",
        seeds=sorted({len(runs) for runs in config.training.rows.values()}),
        sections=made,
        drawn=drawn,
    )
    write_text(page, text)


def _plain(section: Section) -> dict[str, object]:
    """As JSON."""
    return {
        "title": section.title,
        "found": list(section.found),
        "tables": [
            {
                "headings": list(table.headings),
                "rows": [[asdict(value) for value in row] for row in table.rows],
            }
            for table in section.tables
        ],
        "pictures": {picture.name: list(picture.runs) for picture in section.pictures},
    }
