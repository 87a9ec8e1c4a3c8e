"""What training writes while it runs: metrics.jsonl, and a line on stderr now and then."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hadpsgd.decentralized.engine import Report
from hadpsgd.files import explain_os_errors


class Metrics:
    """One rank's rows: `metrics.jsonl` of rank 0, `metrics.rank<r>.jsonl` of the others.

    Args:
        folder: where to write.
        rank: whose.
        step: updates done so far; rows of an attempt that got further are cut off.
    """

    def __init__(self, folder: Path, rank: int, step: int) -> None:
        self.path = folder / ("metrics.jsonl" if rank == 0 else f"metrics.rank{rank}.jsonl")
        with explain_os_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            kept = [row for row in _lines(self.path) if row.get("step", 0) <= step]
            self.path.write_text("".join(json.dumps(row) + "\n" for row in kept))
            self._stream = self.path.open("a", encoding="utf-8")

    def write(self, **row: Any) -> None:
        """One row, at once on disk for those who read along."""
        with explain_os_errors(self.path):
            self._stream.write(json.dumps({**row, "time": time.time()}) + "\n")
            self._stream.flush()

    def close(self) -> None:
        """No more rows."""
        self._stream.close()


class Meter:
    """Sums over the steps since the last row."""

    def __init__(self, rounds: int) -> None:
        self.reset(rounds)

    def reset(self, rounds: int) -> None:
        """Begin anew; `rounds` mixes are done."""
        self.begin = time.perf_counter()
        self.steps = self.frames = self.skipped = self.staleness = 0
        self.loss = self.norm = self.exposed = self.data = 0.0
        self.rounds = rounds

    @contextmanager
    def waiting_for_data(self) -> Iterator[None]:
        """Time the block."""
        begin = time.perf_counter()
        yield
        self.data += time.perf_counter() - begin

    def add(self, loss: float, frames: int, report: Report) -> None:
        """One step."""
        self.steps += 1
        self.frames += frames
        self.loss += loss
        self.norm += 0.0 if report.skipped else report.norm
        self.staleness += report.staleness
        self.exposed += report.exposed
        self.skipped += report.skipped

    @property
    def seconds(self) -> float:
        """Since the last row."""
        return time.perf_counter() - self.begin

    def row(self, rounds: int) -> dict[str, float]:
        """Means over the steps, and shares of the wall-clock time."""
        steps, seconds = max(1, self.steps), self.seconds
        return {
            "loss": self.loss / steps,
            "gradient_norm": self.norm / steps,
            "staleness": self.staleness / steps,
            "mixes_per_step": (rounds - self.rounds) / steps,
            "share_communication": self.exposed / seconds,
            "share_data": self.data / seconds,
            "skipped": self.skipped,
        }


def say(text: str) -> None:
    """A line on stderr."""
    print(text, file=sys.stderr, flush=True)


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue  # a kill left half a line
    return rows
