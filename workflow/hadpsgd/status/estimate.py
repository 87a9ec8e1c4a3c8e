"""How long jobs take, by what those of the same rule took, and a workflow with them."""

from __future__ import annotations

import csv
import heapq
import statistics
from collections.abc import Mapping
from glob import escape
from pathlib import Path

from hadpsgd.status.jobs import Jobs, Planned


class Times:
    """Seconds of jobs, from benchmark files and from what happened since the start."""

    def __init__(self, jobs: Jobs) -> None:
        """`jobs` of a workflow."""
        self._folder = Path(jobs.start.folder)
        self._found: dict[str, list[tuple[str, float]]] = {}
        self._watched: dict[str, list[float]] = {}
        for job in jobs.finished:
            if job.job in jobs.began:
                took = jobs.last[job.job].time - jobs.began[job.job].time
                self._watched.setdefault(job.rule, []).append(took)

    def of(self, job: Planned) -> float | None:
        """Seconds of a job: the median of those of its rule that share most wildcards with it.

        So its own of a former time come first, then those of other runs on the same set. Of a rule
        without benchmarks those of this start count. None where there are none.
        """
        shared: dict[int, list[float]] = {}
        for name, seconds in self._benchmarks(job):
            common = sum(f".{value}." in f".{name}." for value in job.wildcards.values())
            shared.setdefault(common, []).append(seconds)
        if shared:
            return statistics.median(shared[max(shared)])
        watched = self._watched.get(job.rule)
        return statistics.median(watched) if watched else None

    def _benchmarks(self, job: Planned) -> list[tuple[str, float]]:
        """Of all jobs of its rule: name of the file without its ending, and seconds."""
        if not job.benchmark:
            return []
        path = self._folder / job.benchmark
        name = escape(path.name)
        for value in job.wildcards.values():
            name = name.replace(f".{escape(value)}.", ".*.")
        pattern = str(path.with_name(name))
        if pattern not in self._found:
            pairs = ((file.stem, seconds_of(file)) for file in sorted(path.parent.glob(name)))
            self._found[pattern] = [(stem, s) for stem, s in pairs if s is not None]
        return self._found[pattern]


def seconds_of(file: Path) -> float | None:
    """What a benchmark file of Snakemake says; None where it is not one, or just being written."""
    try:
        with file.open(encoding="utf-8", newline="") as stream:
            return float(list(csv.DictReader(stream, delimiter="\t"))[-1]["s"])
    except (OSError, ValueError, IndexError, KeyError, TypeError):
        return None


def together(
    running: Mapping[str, float], waiting: Mapping[str, float], jobs: Jobs, *, threads: bool
) -> float:
    """Seconds until all are done, if jobs start as soon as those before them are done and there
    is room, those of high priority first.

    Args:
        running: seconds that running jobs still take.
        waiting: seconds of those that wait.
        jobs: tells their order and the slots.
        threads: whether a job takes as many slots as it has threads, else one.
    """
    slots = jobs.start.slots

    def size(job: str) -> int:
        return max(1, min(jobs.planned[job].threads, slots)) if threads else 1

    opened = {*running, *waiting}
    before = {job: opened.intersection(jobs.planned[job].after) for job in waiting}
    after: dict[str, list[str]] = {}
    for job, others in before.items():
        for other in others:
            after.setdefault(other, []).append(job)
    ready = [(-jobs.planned[job].priority, job) for job in waiting if not before[job]]
    heapq.heapify(ready)
    ends = [(seconds, job) for job, seconds in running.items()]
    heapq.heapify(ends)
    free, now = slots - sum(map(size, running)), 0.0
    while ready or ends:
        too_large = []
        while ready and free > 0:
            _, job = place = heapq.heappop(ready)
            if size(job) > free:
                too_large.append(place)
                continue
            free -= size(job)
            heapq.heappush(ends, (now + waiting[job], job))
        for place in too_large:
            heapq.heappush(ready, place)
        now, job = heapq.heappop(ends)
        free += size(job)
        for other in after.get(job, ()):
            before[other].discard(job)
            if not before[other]:
                heapq.heappush(ready, (-jobs.planned[other].priority, other))
    return now
