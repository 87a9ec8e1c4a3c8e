"""report.html: one page that needs nothing from elsewhere, and index.html with links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from hadpsgd.config import Config
from hadpsgd.reports import curves, differences, seconds, significance, staleness, table
from hadpsgd.reports.findings import Findings
from hadpsgd.reports.rows import ResultRow
from hadpsgd.scoring.seeds import mean_over_seeds
from hadpsgd.tracking import provenance, training_run
from hadpsgd.tracking.results import RunResult, sets

_TEMPLATE = "report.html.j2"


def render(template: str, **values: Any) -> str:
    """A page from a template of this folder; text is escaped, what is missing is an error."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values)


def page(
    found: Findings,
    errors: Mapping[str, str] | None = None,
    compared: Mapping[str, str] | None = None,
) -> str:
    """The page as text.

    Args:
        found: what it shows.
        errors: addresses of pages of errors, by the key of the run; without them the page needs
            and links no other file.
        compared: of pages of two runs' errors, in the same way.
    """
    config, results, tests, jobs = found.config, found.results, found.tests, found.jobs
    settings = {row.label: _settings(config, row) for row in found.rows if row.run}
    return render(
        _TEMPLATE,
        name=config.name,
        how_chosen=table.how_chosen(config),
        synthetic=config.corpus.kind == "builtin",
        neural=config.lm.neural is not None,
        virtual=table.VIRTUAL if any(row.simulated for row in found.rows) else "",
        ends=found.ends,
        sets=sets(config),
        rows=_rows(found, found.rows, errors or {}, compared or {}),
        tested=significance.table(found.tested, tests) if tests else None,
        note=significance.note(tests) if tests else "",
        counts=table.counts(config, found.rows),
        pictures=_pictures(config, results),
        stages=jobs,
        longest=max((job.seconds for job in jobs), default=1.0),
        largest=max((job.peak_mib or 0.0 for job in jobs), default=0.0) or 1.0,
        differences=differences.table(list(settings), differences.differing(settings), "setting"),
        facts=_facts(results),
    )


def _rows(
    found: Findings,
    rows: Sequence[ResultRow],
    errors: Mapping[str, str],
    compared: Mapping[str, str],
) -> list[dict[str, Any]]:
    leaders = {name: significance.leaders(test) for name, test in found.tests.items()}
    return [
        {
            "row": row,
            "cells": [
                {
                    "score": row.scores.get(name),
                    "mean": float(np.mean(rates)) if (rates := row.rates.get(name)) else None,
                    "of": len(rates or ()),
                    "best": row.label in leaders.get(name, ()),
                    "interval": _interval(found, row, name),
                }
                for name in sets(found.config)
            ],
            "errors": errors.get(row.key, ""),
            "compared": compared.get(row.key, ""),
            "members": _rows(found, row.members, errors, compared),
        }
        for row in rows
    ]


def _interval(found: Findings, row: ResultRow, name: str) -> str:
    """Over seeds where the row has several, else as it was tested."""
    if len(rates := row.rates.get(name, ())) > 1:
        mean = mean_over_seeds(rates)
        return f"{mean.low:.2f} .. {mean.high:.2f}"
    return significance.interval(found.tests, name=name, run=row.label)


def _settings(config: Config, row: ResultRow) -> dict[str, str]:
    """All settings of a row; where its runs differ, every value."""
    each = [training_run.parameters(config, run.label) for run in row.runs]
    return {name: ", ".join(dict.fromkeys(values[name] for values in each)) for name in each[0]}


def _pictures(config: Config, results: Sequence[RunResult]) -> list[dict[str, Any]]:
    drawn = [result for result in results if result.metrics]
    if not drawn:
        return []
    slowed = " ".join(["", *seconds.sentences(drawn)])
    timed = seconds.figure(drawn)
    figures = (
        (
            timed if any(axis.lines for axis in timed.axes) else None,
            f"Against seconds of training. Thick: held-out. Thin: training.{slowed}",
        ),
        (curves.losses(drawn), "Against epochs. Thick: held-out. Thin: training."),
        (curves.learning_rates(config, drawn), "The rule (grey) and what the runs used."),
        (
            staleness.figure(drawn),
            "Staleness. A row is a learner and a partner of it; the darker, the more of its mixes.",
        ),
    )
    return [
        {"svg": Markup(curves.inline_svg(figure, caption)), "caption": caption}
        for figure, caption in figures
        if figure is not None
    ]


def _facts(results: Sequence[RunResult]) -> list[tuple[str, str]]:
    found = next((p for r in results if (p := provenance.read(r.folder))), None)
    if not found:
        return []
    code, machine = found["code"], found["machine"]
    changes = " with uncommitted changes" if code["dirty"] else ""
    packages = ", ".join(f"{n} {v}" for n, v in found["packages"].items())
    gpus = ", ".join(machine["gpus"]) or "no GPU"
    cores = f"{machine['cores']} cores, {machine['memory_gib']} GiB"
    return [
        ("code", f"commit {code['commit'][:12] or 'unknown'}{changes}"),
        ("lock", found["lock"][:12]),
        ("data", found["data_checksum"][:12]),
        ("seed", str(found["seed"])),
        ("machine", f"{machine['processor']}, {cores}, {gpus}"),
        *found.get("arithmetic", {}).items(),
        ("packages", packages),
    ]
