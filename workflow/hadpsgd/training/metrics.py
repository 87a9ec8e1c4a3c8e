"""What training writes while it runs: metrics.jsonl, and a line on stderr now and then."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hadpsgd.training.row_file import RowFile

if TYPE_CHECKING:  # who starts ranks has no use for torch
    from hadpsgd.decentralized.core.engine import Engine, Report
    from hadpsgd.decentralized.core.observation import Observation


class Metrics:
    """One rank's rows: `metrics.jsonl` of rank 0, `metrics.rank<r>.jsonl` of the others.

    Args:
        folder: where to write.
        rank: whose.
        step: updates done so far; rows of an attempt that got further are cut off, others `kept`.
        process: the start and the life of this process; see `RowFile`.
    """

    def __init__(
        self, folder: Path, *, rank: int, step: int, process: tuple[int, int] = (1, 0)
    ) -> None:
        path = folder / ("metrics.jsonl" if rank == 0 else f"metrics.rank{rank}.jsonl")
        self._file = RowFile(path, process=process, counts=lambda row: row.get("step", 0) <= step)
        self.kept = self._file.kept

    def write(self, **row: Any) -> None:
        """One row."""
        self._file.write({**row, "time": time.time()})

    def close(self) -> None:
        """No more rows."""
        self._file.close()


class Meter:
    """Sums over the steps since the last row."""

    def __init__(self, engine: Engine, now: Callable[[], float] = time.perf_counter) -> None:
        """`now` tells the time, in seconds."""
        self.engine = engine
        self._now = now
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self.begin = self._now()
        self.steps = self.frames = self.skipped = 0
        self.loss = self.norm = self.exposed = self.data = 0.0
        self.staleness: Counter[int] = Counter()
        self.rounds, self.sent = self.engine.rounds, self.engine.bytes_sent

    @contextmanager
    def waiting_for_data(self) -> Iterator[None]:
        """Time the block."""
        begin = self._now()
        yield
        self.data += self._now() - begin

    def add(self, *, loss: float, frames: int, report: Report) -> None:
        """One step."""
        self.steps += 1
        self.frames += frames
        self.loss += loss
        self.norm += 0.0 if report.skipped else report.norm
        self.staleness[report.staleness] += 1
        self.exposed += report.exposed
        self.skipped += report.skipped

    @property
    def seconds(self) -> float:
        """Since the last row."""
        return self._now() - self.begin

    def row(self) -> dict[str, Any]:
        """Means over the steps, shares of the wall-clock time, what was seen of the mixes."""
        steps, seconds = max(1, self.steps), self.seconds
        communication, data = self.exposed / seconds, self.data / seconds
        return {
            "loss": self.loss / steps,
            "gradient_norm": self.norm / steps,
            "staleness": mean(self.staleness),
            "staleness_counts": dict(sorted(self.staleness.items())),
            "mixes_per_step": (self.engine.rounds - self.rounds) / steps,
            "learner_frames_per_second": self.frames / seconds,
            "share_communication": communication,
            "share_data": data,
            "share_compute": max(0.0, 1.0 - communication - data),
            "megabytes_sent_per_step": (self.engine.bytes_sent - self.sent) / steps / 1e6,
            "skipped": self.skipped,
            **_seen(self.engine.observe()),
        }


def _seen(observation: Observation) -> dict[str, Any]:
    """Numbers for the curves, and the counts behind them (text for people, no curve)."""
    row: dict[str, Any] = {}
    if observation.distance is not None:
        row["consensus_distance"] = observation.distance
    for node, counts in sorted(observation.lags.items()):
        row[f"lag_behind_{node}"] = -mean(counts)
    if observation.lags:
        row["lag_counts"] = {n: dict(sorted(c.items())) for n, c in observation.lags.items()}
    return row


def mean(counts: Mapping[int, int]) -> float:
    """Of numbers, given how often each came."""
    return sum(value * count for value, count in counts.items()) / max(1, sum(counts.values()))


def say(text: str) -> None:
    """A line on stderr."""
    print(text, file=sys.stderr, flush=True)
