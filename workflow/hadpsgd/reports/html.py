"""report.html: one page that needs nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from hadpsgd.config import Config
from hadpsgd.reports import curves, differences, significance, stages, staleness, table
from hadpsgd.reports.rows import ResultRow
from hadpsgd.tracking import provenance, training_run
from hadpsgd.tracking.results import RunResult, results_folder, sets

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
    config: Config,
    results: Sequence[RunResult],
    rows: Sequence[ResultRow],
    jobs: Sequence[stages.Stage],
    tests: significance.Tests,
) -> str:
    """The page as text.

    Args:
        config: whose runs they are.
        results: of all runs.
        rows: the same as rows of the table.
        jobs: time and memory of the stages.
        tests: of the differences between runs.
    """
    tested = significance.labels(config, results)
    settings = {r.run.id: training_run.parameters(config, r.run.id) for r in results}
    return render(
        _TEMPLATE,
        name=config.name,
        synthetic=config.corpus.kind == "builtin",
        sets=sets(config),
        rows=_rows(config, rows, tests),
        tested=significance.table(tested, tests) if tests else None,
        note=significance.note(tests) if tests else "",
        counts=table.counts(config, rows),
        pictures=_pictures(config, results),
        stages=jobs,
        longest=max((job.seconds for job in jobs), default=1.0),
        largest=max((job.peak_mib or 0.0 for job in jobs), default=0.0) or 1.0,
        differences=differences.table(list(settings), differences.differing(settings), "setting"),
        facts=_facts(results),
    )


def _rows(
    config: Config, rows: Sequence[ResultRow], tests: significance.Tests
) -> list[dict[str, Any]]:
    leaders = {name: significance.leaders(test) for name, test in tests.items()}
    return [
        {
            "row": row,
            "cells": [
                {
                    "score": row.scores.get(name),
                    "best": row.label in leaders.get(name, ()),
                    "interval": significance.interval(tests, name=name, run=row.label),
                }
                for name in sets(config)
            ],
            "errors": _error_page(config, row),
        }
        for row in rows
    ]


def _error_page(config: Config, row: ResultRow) -> str:
    """Address of the run's page of errors, from report.html; empty where there is none."""
    page = Path("errors", row.key, "index.html")
    return page.as_posix() if (results_folder(config) / page).is_file() else ""


def _pictures(config: Config, results: Sequence[RunResult]) -> list[dict[str, Any]]:
    drawn = [result for result in results if result.metrics]
    if not drawn:
        return []
    figures = (
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
        ("packages", packages),
    ]
