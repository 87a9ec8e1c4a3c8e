"""Records that a workflow leaves, and what `hadpsgd status` prints of them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from hadpsgd.cli import main
from hadpsgd.status.jobs import FILE, Happened, Jobs, Planned, Start


def config(folder: Path) -> Path:
    """A config whose results folder the workflow uses."""
    file = folder / "few.yaml"
    content = {"name": "few", "results": str(folder / "results"), "corpus": {"kind": "builtin"}}
    file.write_text(yaml.safe_dump(content))
    return file


def status(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What the command prints."""
    assert main(["status", "--config", str(folder / "few.yaml")]) == 0
    return capsys.readouterr().out.splitlines()


def row(lines: list[str], title: str) -> str:
    """The first row of a part."""
    return lines[lines.index(f"{title}:") + 1].strip()


def recorded(out: Path, *rows: Start | Planned | Happened) -> None:
    """What a workflow has recorded."""
    out.mkdir(parents=True, exist_ok=True)
    (out / FILE).write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows))


def planned(job: str, after: str = "", threads: int = 1, **changes: object) -> Planned:
    """A job whose rule is its name."""
    fields: dict[str, object] = {
        "job": job,
        "rule": job,
        "wildcards": {},
        "needed": True,
        "after": list(after),
        "threads": threads,
        "priority": 0,
        "outputs": [],
        "logs": [],
        "benchmark": "",
    }
    return Planned(**(fields | changes))  # type: ignore[arg-type]


def jobs(folder: Path, *those: Planned, slots: int = 2) -> Jobs:
    """Of a start."""
    start = Start(
        time=0.0, folder=str(folder), executor="local", slots=slots, remote=False, snapshot=""
    )
    return Jobs(start, {job.job: job for job in those})
