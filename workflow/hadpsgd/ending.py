"""What is known of results as a workflow ends with a failure, and of what it recorded later."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hadpsgd.config import Config, load, stage_keys
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


@dataclass(frozen=True)
class Former:
    """What the last start of a workflow planned to make in a results folder and did not."""

    outputs: tuple[str, ...] = ()
    """Paths within the folder."""
    began: float = 0.0
    """When that start was, in seconds since 1970."""

    @classmethod
    def of(cls, config: Config, out: Path) -> Former:
        """By the record of the folder `out`.

        Nothing where none is there, or a damaged one, or the start was of other settings: what
        these wanted says nothing of results as `config` wants them.
        """
        try:
            recorded = jobs.read(out)
            if recorded is None:
                return cls()
            snapshot = Path(recorded.start.snapshot)  # as `out` was called: it may be moved
            then = load(out / snapshot.parent.name / snapshot.name)
        except (UserError, OSError):
            return cls()
        if stage_keys(then) != stage_keys(config):
            return cls()
        made = {job.job for job in recorded.finished}
        missing = (job for job in recorded.planned.values() if job.needed and job.job not in made)
        folder = snapshot.parent.parent
        outputs = (os.path.relpath(output, folder) for job in missing for output in job.outputs)
        return cls(tuple(outputs), recorded.start.time)

    @property
    def unfinished(self) -> list[str]:
        """As `unfinished`, once the workflow is gone, or from beside it."""
        return unfinished_of(self.outputs, Path())
