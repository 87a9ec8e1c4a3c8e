"""A workflow on one screen."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import chain
from pathlib import Path
from textwrap import wrap

from hadpsgd.locks import look
from hadpsgd.progress import end_of, last_line, length
from hadpsgd.run_folder import LAUNCH_LOCK
from hadpsgd.status.estimate import Times, together
from hadpsgd.status.jobs import Jobs, Planned
from hadpsgd.tracking import metrics_file
from hadpsgd.tracking.pace import Pace

_MODEL = "final.pt"
_WIDTH = 98
_TAIL = 4_000_000
"""Bytes of a training's record that are read: hundreds of rows of 128 learners."""
_STOPPED = re.compile(r": stopped\b.*; run it again")
"""How logs of stages end that Ctrl-C or SIGTERM stopped."""
_SHOWN = 12
"""Rows of a part; the rest is counted."""


@dataclass(frozen=True, kw_only=True)
class Running:
    """A job that runs: since when, how long it still takes if that is known, what it says."""

    job: Planned
    since: float
    left: float | None
    says: str


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a cluster has a job, and for how many seconds it has run there, if that is known."""

    text: str
    runs: float | None


class Screen:
    """What is told of the last start of a workflow.

    Args:
        name: of the config.
        jobs: of the start.
        holder: who runs it now; empty where nobody does.
        sure: whether the lock tells if anybody does.
        now: seconds since 1970.
        places: where jobs run, by their numbers on the cluster.
    """

    def __init__(
        self,
        name: str,
        jobs: Jobs,
        *,
        holder: str,
        now: float,
        places: Mapping[str, Place],
        sure: bool = True,
    ) -> None:
        self._name, self._jobs, self._holder = name, jobs, holder
        self._now, self._places, self._sure = now, places, sure
        self._times = Times(jobs)
        self._folder = Path(jobs.start.folder)
        self._depth = _depths(jobs.planned)
        self._blocked = _behind(jobs.failed, jobs.waiting) if holder else []
        blocked = {job.job for job in self._blocked}
        self._waiting = [job for job in jobs.waiting if job.job not in blocked]
        self._running = [self._look(job) for job in jobs.begun] if holder else []
        self._cut = [] if holder else [*jobs.begun, *filter(self._was_stopped, jobs.failed)]
        self._failed = [job for job in jobs.failed if job not in self._cut]

    def lines(self) -> list[str]:
        """The screen, its summary first."""
        began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self._jobs.start.time))
        who = f" by {self._holder}" if self._holder else ""
        head = [self.summary(), f"last start: {began}{who}"]
        return [*head, *self._rows_running(), *self._rows_failed(), *self._rows_left()]

    def summary(self) -> str:
        """One line."""
        jobs = self._jobs
        done, total = len(jobs.made_before) + len(jobs.finished), len(jobs.planned)
        counted = f"{done} of {total} jobs done"
        failed = f", {len(self._failed)} failed" * bool(self._failed)
        if self._holder:
            left = len(self._waiting) + len(self._blocked)
            return (
                f"{self._name}: running; {counted}, {len(self._running)} running{failed}, "
                f"{left} left; {self._time_left()}"
            )
        if done == total:
            return f"{self._name}: finished; all {total} jobs done"
        how = "failed" if self._failed else "stopped"
        at = length(max(self._now - jobs.latest, 0.0))
        if not self._sure:
            return (
                f"{self._name}: running or {how} (no locks on this file system tell which), last "
                f"event {at} ago; {counted}{failed}, {total - done} left"
            )
        return f"{self._name}: {how} {at} ago; {counted}{failed}, {total - done} left"

    def _time_left(self) -> str:
        waiting = {job.job: self._times.of(job) for job in self._waiting}
        running = {each.job.job: each.left for each in self._running}
        unknown = [job for job, s in chain(waiting.items(), running.items()) if s is None]
        seconds = together(
            {job: s or 0.0 for job, s in running.items()},
            {job: s or 0.0 for job, s in waiting.items()},
            self._jobs,
            threads=not self._jobs.start.remote,
        )
        rules = sorted({self._jobs.planned[job].rule for job in unknown})
        if len(unknown) == len(waiting) + len(running) and unknown:
            return "no time known yet"
        queue = ", waiting in the queue aside" * self._jobs.start.remote
        if not unknown:
            return f"about {length(seconds)} left{queue}"
        named = ", ".join(rules[:5]) + ", ..." * (len(rules) > 5)
        return f"at least {length(seconds)} left{queue} (no time known of {named})"

    def _look(self, job: Planned) -> Running:
        place = self._places.get(self._jobs.numbers.get(job.job, ""))
        since = self._now - self._jobs.began[job.job].time
        if place is not None and place.runs is not None:
            since = place.runs  # without its time in the queue
        left, says = self._pace(job)
        if left is None:
            says = next(filter(None, (last_line(self._folder / log) for log in job.logs)), "")
            known = self._times.of(job)
            left = None if known is None else max(known - since, 0.0)
        return Running(job=job, since=since, left=left, says=says)

    def _pace(self, job: Planned) -> tuple[float | None, str]:
        """Of a training, by the rows that it writes."""
        run = self._run_folder(job)
        if run is None:
            return None, ""
        pace, epoch = Pace(), 0.0
        file = run / metrics_file.FILE
        for row in metrics_file.last_rows(file, size=_TAIL):
            pace.add(row)
            epoch = row.get("epoch", epoch)
        return pace.seconds(), f"epoch {epoch:.2f} of {pace.epochs}"

    def _rows_running(self) -> list[str]:
        rows = []
        for each in self._running:
            number = self._jobs.numbers.get(each.job.job)
            left = "" if each.left is None else f"about {length(each.left)} left"
            place = self._places.get(number) if number else None
            where = place.text if place else f"job {number}" if number else "here"
            rows.append([each.job.name, where, f"{length(each.since)} so far", left, each.says])
        return _part("running", rows)

    def _rows_failed(self) -> list[str]:
        rows = [[job.name, *job.logs, self._became_of(job)] for job in self._failed]
        return _part("failed", rows)

    def _was_stopped(self, job: Planned) -> bool:
        """Snakemake counts jobs as failed that ended with it, by the same Ctrl-C."""
        return any(_STOPPED.search(end_of(self._folder / log)) for log in job.logs)

    def _became_of(self, job: Planned) -> str:
        """How a failed job's log ends.

        Snakemake counts a job as failed when its shell is gone; a training may live, and says
        nothing more to it.
        """
        run = self._run_folder(job)
        lock = look(run / LAUNCH_LOCK) if run else None
        if lock and lock.held:
            return f"still trains, {lock.content}; the next start waits for its end"
        return next(filter(None, (end_of(self._folder / log) for log in job.logs)), "")

    def _run_folder(self, job: Planned) -> Path | None:
        """Of a training."""
        model = next((Path(out) for out in job.outputs if Path(out).name == _MODEL), None)
        return self._folder / model.parent if model else None

    def _rows_left(self) -> list[str]:
        cut = [[job.name, *job.logs] for job in self._cut]
        return [
            *_part("interrupted" if self._sure else "running or interrupted", cut),
            *self._by_rule("left", self._waiting),
            *self._by_rule("not made, since what they need failed", self._blocked),
        ]

    def _by_rule(self, title: str, jobs: Sequence[Planned]) -> list[str]:
        """How many jobs of each rule, in their order."""
        jobs = sorted(jobs, key=lambda job: self._depth[job.job])
        known: dict[str, float] = {}
        for job in jobs:
            known[job.rule] = known.get(job.rule, 0.0) + (self._times.of(job) or 0.0)
        counts = Counter(job.rule for job in jobs)
        texts = (
            f"{count} {rule}" + (f" ({length(known[rule])} of work)" if known[rule] else "")
            for rule, count in counts.items()
        )
        return _part(title, [[line] for line in wrap(", ".join(texts), _WIDTH)])


def _behind(failed: Sequence[Planned], waiting: Sequence[Planned]) -> list[Planned]:
    """Waiting jobs that need a failed one."""
    after: dict[str, list[Planned]] = {}
    for job in waiting:
        for other in job.after:
            after.setdefault(other, []).append(job)
    found: dict[str, Planned] = {}
    open_ = [job.job for job in failed]
    while open_:
        for job in after.get(open_.pop(), ()):
            if job.job not in found:
                found[job.job] = job
                open_.append(job.job)
    return list(found.values())


def _depths(planned: Mapping[str, Planned]) -> dict[str, int]:
    """How many jobs lie one after the other before each."""
    found: dict[str, int] = {}
    order = TopologicalSorter({job.job: job.after for job in planned.values()}).static_order()
    for job in order:
        after = planned[job].after if job in planned else ()
        found[job] = 1 + max((found[other] for other in after), default=-1)
    return found


def _part(title: str, rows: Sequence[Sequence[str]]) -> list[str]:
    """A title and aligned rows; nothing without rows."""
    if not rows:
        return []
    shown = [list(row) for row in rows[:_SHOWN]]
    columns = max(map(len, shown))
    padded = [row + [""] * (columns - len(row)) for row in shown]
    widths = [max(map(len, column)) for column in zip(*padded, strict=True)]
    lines = [
        "  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in padded
    ]
    more = len(rows) - len(shown)
    return ["", f"{title}:", *lines, *([f"  and {more} more"] if more else [])]
