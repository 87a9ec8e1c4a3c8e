"""What is known of results as a workflow ends with a failure, and of what it recorded later."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hadpsgd.errors import UserError
from hadpsgd.status import jobs

_LISTS = ".jsonl.gz"
_ON_DEV = (("decode", "dev"), ("lists", f"dev{_LISTS}"), ("score", "tuned.json"))


def unfinished(workflow: Any, out: Path) -> list[str]:
    """What was to be made and was not, of runs: KEY, or KEY/SET where it is a test set alone.

    Former files of it may still lie in the results folder `out`: Snakemake removes them as their
    job starts.
    """
    outputs = (str(file) for job in workflow.dag.needrun_jobs() for file in job.output)
    return unfinished_of(outputs, out)


def unfinished_of(outputs: Iterable[str], out: Path) -> list[str]:
    """The same of the outputs of jobs."""
    found = set()
    for output in outputs:
        stage, *rest = Path(os.path.relpath(output, out)).parts
        if stage == "runs" or (stage, *rest[1:]) in _ON_DEV:
            found.add(rest[0])  # all sets are scored with what is chosen on dev
        elif stage in ("decode", "lists", "score"):
            found.add("/".join(rest[:2]).removesuffix(_LISTS))
    return sorted(found)


def not_made(out: Path) -> list[str]:
    """What the last start of a workflow planned to make in `out` and did not, by its record.

    Paths within `out`; none where nothing is recorded, or what is recorded is damaged.
    """
    try:
        recorded = jobs.read(out)
    except UserError:
        return []
    if recorded is None:
        return []
    then = Path(recorded.start.snapshot).parent.parent  # `out` as it was called: it may be moved
    made = {job.job for job in recorded.finished}
    missing = (job for job in recorded.planned.values() if job.needed and job.job not in made)
    return [os.path.relpath(output, then) for job in missing for output in job.outputs]


def recorded_unfinished(out: Path) -> list[str]:
    """As `unfinished`, once the workflow is gone, or from beside it."""
    return unfinished_of(not_made(out), Path())
