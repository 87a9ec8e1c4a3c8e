"""Peak memory and time of every stage, from Snakemake's benchmark files."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hadpsgd.config import Config, beside_rows, run_key
from hadpsgd.errors import UserError
from hadpsgd.reports.rows import MISSING
from hadpsgd.reports.table import Table
from hadpsgd.tracking.results import results_folder, sets


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One job: `peak_mib` is the largest resident set, `cpu` the mean load in percent."""

    name: str
    seconds: float
    peak_mib: float | None
    cpu: float | None


OF_RUNS = ("train", "decode", "lists", "tune", "score", "errors")
"""Rules whose files are named `<rule>.<key of the run>` or `<rule>.<key>.<set>`."""


def of_config(config: Config) -> list[Stage]:
    """The jobs of a config, the first finished first: those of other runs and sets are left out.

    A results folder keeps what was made with former settings, and its benchmarks.

    Raises:
        UserError: a file is not one of Snakemake's.
    """
    runs = (run_key(config, run.id) for run in config.training.members)
    keys = {*runs, *beside_rows(config).values()}
    names = set(sets(config))

    def ours(stage: Stage) -> bool:
        rule, _, rest = stage.name.partition(".")
        key, _, name = rest.partition(".")
        return rule not in OF_RUNS or (key in keys and (not name or name in names))

    return [stage for stage in read(results_folder(config) / "benchmarks") if ours(stage)]


def read(folder: Path) -> list[Stage]:
    """Every benchmark file below a folder, the first finished first; raises as `of_config`."""
    files = sorted(folder.rglob("*.tsv"), key=lambda file: file.stat().st_mtime)
    return [_read(file, file.relative_to(folder).with_suffix("").as_posix()) for file in files]


def _read(file: Path, name: str) -> Stage:
    with file.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    try:
        row = rows[-1]
        return Stage(
            name=name,
            seconds=float(row["s"]),
            peak_mib=_number(row["max_rss"]),
            cpu=_number(row["mean_load"]),
        )
    except (IndexError, KeyError, ValueError):
        raise UserError(
            "not a benchmark file of Snakemake", where=file, fix="Remove it and run again"
        ) from None


def _number(text: str | None) -> float | None:
    """Snakemake writes NA or - for jobs too short to measure."""
    try:
        return float(text or "")
    except ValueError:
        return None


def table(stages: Sequence[Stage]) -> Table:
    """One row a job."""
    rows = [
        [
            stage.name,
            f"{stage.seconds:.1f}",
            MISSING if stage.peak_mib is None else f"{stage.peak_mib:.0f}",
            MISSING if stage.cpu is None else f"{stage.cpu:.0f}",
        ]
        for stage in stages
    ]
    return Table(["stage", "seconds", "peak RAM MiB", "load %"], rows, frozenset({"stage"}))


def page(name: str, stages: Sequence[Stage]) -> str:
    """stages.md."""
    total = sum(stage.seconds for stage in stages)
    return f"""# {name}: time and memory of the stages

Wall time, largest resident set of the job's processes together, and mean load (100 % is one
core), as measured by Snakemake. A dash: too short to measure. {total:.0f} s in all, stages that
ran side by side counted apart.

{table(stages).markdown()}"""
