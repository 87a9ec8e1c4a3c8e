"""The jobs of a workflow and what became of them, read from what it records."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hadpsgd.errors import UserError

FILE = ".workflow.jobs.jsonl"
STARTED, SUBMITTED, FINISHED, FAILED = "started", "submitted", "finished", "failed"


@dataclass(frozen=True, kw_only=True)
class Start:
    """A start of a workflow.

    time: seconds since 1970; folder: where it runs, from where paths of jobs go; slots: cores, or
    jobs at a time where each is one of a cluster (`remote`); snapshot: the config that jobs read.
    """

    time: float
    folder: str
    executor: str
    slots: int
    remote: bool
    snapshot: str


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A job; `needed` if this start has to run it, `after` which others."""

    job: str
    rule: str
    wildcards: dict[str, str]
    needed: bool
    after: list[str]
    threads: int
    priority: float
    outputs: list[str]
    logs: list[str]
    benchmark: str

    @property
    def name(self) -> str:
        """Rule and wildcards."""
        return " ".join([self.rule, *self.wildcards.values()])


@dataclass(frozen=True, kw_only=True)
class Happened:
    """That a job was started, submitted to a cluster (where its number is `external`), finished or
    failed."""

    job: str
    what: str
    time: float
    external: str = ""


@dataclass
class Jobs:
    """What is recorded of the last start."""

    start: Start
    planned: dict[str, Planned]
    last: dict[str, Happened] = field(default_factory=dict)
    """The last event of each job."""
    began: dict[str, Happened] = field(default_factory=dict)
    """Its last start."""
    numbers: dict[str, str] = field(default_factory=dict)
    """On the cluster, since that start."""

    @property
    def finished(self) -> list[Planned]:
        """Jobs that this start has run."""
        return self._whose_last(FINISHED)

    @property
    def failed(self) -> list[Planned]:
        """Jobs that failed and were not started again."""
        return self._whose_last(FAILED)

    @property
    def begun(self) -> list[Planned]:
        """Jobs that run, or ran when the workflow was stopped."""
        return self._whose_last(STARTED)

    @property
    def waiting(self) -> list[Planned]:
        """Jobs that were not started yet."""
        return [job for job in self.planned.values() if job.needed and job.job not in self.last]

    @property
    def made_before(self) -> list[Planned]:
        """Jobs whose outputs were there already."""
        return [job for job in self.planned.values() if not job.needed and job.job not in self.last]

    @property
    def latest(self) -> float:
        """When something happened last, in seconds since 1970."""
        return max([self.start.time, *(event.time for event in self.last.values())])

    def _whose_last(self, what: str) -> list[Planned]:
        return [self.planned[job] for job, event in self.last.items() if event.what == what]


def read(out: Path) -> Jobs | None:
    """Of a results folder; None where no workflow has recorded any.

    Lines that are damaged are left out, as a disk leaves them that was full for a moment, and one
    that is being written.

    Raises:
        UserError: the first line, of the start, is damaged.
    """
    path = out / FILE
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    first, *lines = content.splitlines() or [b""]
    try:
        jobs = Jobs(Start(**json.loads(first)), {})
    except (ValueError, TypeError):
        fix = "The next start of the workflow writes it anew"
        raise UserError("damaged", where=path, fix=fix) from None
    for line in lines:
        with suppress(ValueError, TypeError):
            _add(jobs, json.loads(line))
    return jobs


def _add(jobs: Jobs, row: dict[str, Any]) -> None:
    """A row after the first; raises TypeError where it is not one of ours."""
    if "what" not in row:
        planned = Planned(**row)
        jobs.planned[planned.job] = planned
        return
    event = Happened(**row)
    if event.what == SUBMITTED:
        jobs.numbers[event.job] = event.external
    elif event.job in jobs.planned:
        jobs.last.pop(event.job, None)  # so that they are in the order of events
        jobs.last[event.job] = event
        if event.what == STARTED:
            jobs.began[event.job] = event
            jobs.numbers.pop(event.job, None)
