"""What stages were measured to take, from which the cost of a corpus is computed.

`pieces.json` is written by `benchmarks/scale.py`: a line by hours of speech for each stage, and
what larger models add; docs/benchmarks/scale.md shows the points.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("pieces.json")


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A stage."""

    fixed_seconds: float
    """Of a processor, whatever the speech."""
    hour_seconds: float
    """Of a processor, for an hour of speech."""
    mib: float
    """Of memory, all processes of the stage together, at the length that took most."""
    size_seconds: float = 0.0
    """For an hour of speech and a thousand Gaussians more than were measured."""

    def seconds(self, hours: float, *, gaussians: float = 0.0) -> float:
        """Of a processor; `gaussians` beyond those that were measured with."""
        by_hour = self.hour_seconds + self.size_seconds * max(0.0, gaussians) / 1000
        return self.fixed_seconds + hours * by_hour


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """All stages, and how they were measured."""

    machine: str
    hours: tuple[float, ...]
    """Lengths of speech that were measured."""
    gaussians: dict[str, int]
    """Of the models that were measured, by stage."""
    gflops: float
    """1e9 multiplications and additions a second of a core in a gradient of the papers' network."""
    stages: dict[str, Piece]

    @property
    def longest(self) -> float:
        """Hours beyond which all is extrapolated."""
        return max(self.hours)


@cache
def measured() -> Pieces:
    """As they lie beside this file."""
    told = json.loads(FILE.read_text(encoding="utf-8"))
    stages = {
        name: Piece(
            fixed_seconds=piece["seconds"][0],
            hour_seconds=piece["seconds"][1],
            mib=piece["mib"],
            size_seconds=piece.get("size", 0.0),
        )
        for name, piece in told["stages"].items()
    }
    return Pieces(
        machine=told["machine"],
        hours=tuple(told["hours"]),
        gaussians=told["gaussians"],
        gflops=told["gflops"],
        stages=stages,
    )
