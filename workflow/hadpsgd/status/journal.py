"""What a workflow records of its jobs, for `hadpsgd status`; runs in Snakemake's process.

RESULTS/.workflow.jobs.jsonl, one JSON object a line: first the start (`Start`), then all jobs that
the targets need (`Planned`), then what happens to them (`Happened`). Each start writes it anew.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from snakemake.logging import logger
from snakemake_interface_logger_plugins.common import LogEvent

from hadpsgd.files import atomic_file
from hadpsgd.status.jobs import FAILED, FILE, FINISHED, STARTED, SUBMITTED, Happened, Planned, Start

_recorded: set[Path] = set()


def record(workflow: Any, *, out: Path, snapshot: Path) -> None:
    """Write the jobs of a workflow that starts, and from here on what happens to them.

    Args:
        workflow: Snakemake's.
        out: the results folder.
        snapshot: the config that its jobs read.

    Raises:
        UserError: it cannot be written there.
    """
    if out in _recorded:  # each `use rule` of a module reads the Snakefile again
        return
    _recorded.add(out)
    with atomic_file(out / FILE) as path, path.open("w", encoding="utf-8") as stream:
        stream.write(json.dumps(asdict(_start(workflow, snapshot))) + "\n")
        stream.writelines(json.dumps(asdict(job)) + "\n" for job in _planned(workflow))
    journal = Journal((out / FILE).open("a", encoding="utf-8"))
    logger.addHandler(journal)
    _tell_of_numbers(workflow, journal)
    _tell_of_ends(workflow, journal)


class Journal(logging.Handler):
    """Writes down which jobs start and fail, as Snakemake logs them, and what it is told."""

    def __init__(self, stream: TextIO) -> None:
        """`stream` is closed with the handler."""
        super().__init__(logging.INFO)
        self._stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        """A record of Snakemake's logger."""
        match getattr(record, "event", None):
            case LogEvent.JOB_INFO:  # before the executor has it
                self.write(str(record.__dict__["jobid"]), what=STARTED)
            case LogEvent.JOB_ERROR:
                self.write(str(record.__dict__["jobid"]), what=FAILED)

    def write(self, job: str, *, what: str, external: str = "") -> None:
        """One event, at once on disk; a full disk stops no workflow."""
        happened = Happened(job=job, what=what, time=time.time(), external=external)
        with suppress(OSError, ValueError):
            self._stream.write(json.dumps(asdict(happened)) + "\n")
            self._stream.flush()

    def close(self) -> None:
        """No more events."""
        with suppress(OSError):
            self._stream.close()
        super().close()


def _tell_of_numbers(workflow: Any, journal: Journal) -> None:
    """Executors of clusters register the jobs that they have submitted, with the cluster's numbers.

    Local ones register them, too, maybe after their end.
    """
    register = workflow.persistence.started

    def started(job: Any, external_jobid: str | None = None) -> None:
        if external_jobid is not None:
            journal.write(str(job.jobid), what=SUBMITTED, external=str(external_jobid))
        register(job, external_jobid)

    workflow.persistence.started = started


def _tell_of_ends(workflow: Any, journal: Journal) -> None:
    """Snakemake counts a job as done in its graph once its outputs are there.

    It logs this as well, but not with `--quiet`.
    """
    finish = workflow.dag.finish

    async def finished(job: Any, *args: Any, **options: Any) -> None:
        for each in job if job.is_group() else [job]:
            journal.write(str(each.jobid), what=FINISHED)
        await finish(job, *args, **options)

    workflow.dag.finish = finished


def _start(workflow: Any, snapshot: Path) -> Start:
    settings = workflow.resource_settings
    remote = bool(workflow.remote_exec or not workflow.local_exec)
    return Start(
        time=time.time(),
        folder=str(Path.cwd()),
        executor=workflow.executor_plugin.name,
        slots=(settings.nodes if remote else settings.cores) or 1,
        remote=remote,
        snapshot=str(snapshot),
    )


def _planned(workflow: Any) -> Iterator[Planned]:
    dag = workflow.dag
    # Snakemake gives numbers and priorities to those that it has to run
    numbers = {job: f"there-{n}" for n, job in enumerate(dag.jobs) if not dag.needrun(job)}
    numbers |= {job: str(job.jobid) for job in dag.jobs if job not in numbers}
    for job in dag.jobs:
        needed = dag.needrun(job)
        threads = job.threads if needed else 1
        priority = job.priority if needed else 0
        yield Planned(
            job=numbers[job],
            rule=job.rule.name,
            wildcards={name: str(value) for name, value in job.wildcards_dict.items()},
            needed=needed,
            after=[numbers[other] for other in dag.job_dependencies(job)],
            threads=threads if isinstance(threads, int) else 1,
            priority=priority if isinstance(priority, int | float) else 0,
            outputs=[str(file) for file in job.output],
            logs=[str(file) for file in job.log],
            benchmark=str(job.benchmark or ""),
        )
