"""Staleness of each edge: how far a learner was ahead of the weights that it mixed in.

Every row of metrics.jsonl counts, under `lag_counts`, for each partner the updates that the learner
had applied more than the partner's snapshot held (fewer: negative), mix by mix.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from hadpsgd.tracking import metrics_file
from hadpsgd.tracking.metrics_file import Row

Edges = dict[tuple[int, int], Counter[int]]
"""(rank, partner) -> updates ahead of the partner -> mixes."""
PATTERN = "metrics*.jsonl"
_RANK = re.compile(r"metrics(?:\.rank(\d+))?\.jsonl")


def rank_of(path: Path) -> int | None:
    """Whose metrics a file holds; None if it is no such file."""
    match = _RANK.fullmatch(path.name)
    return int(match[1] or 0) if match else None


def add(edges: Edges, rank: int, row: Row) -> None:
    """Count what a row tells."""
    for partner, counts in row.get("lag_counts", {}).items():
        edge = edges.setdefault((rank, int(partner)), Counter())
        edge.update({int(lag): count for lag, count in counts.items()})


def read(folder: Path) -> Edges:
    """All edges of a run, from the metrics of all its ranks; partners are (super-)learners."""
    edges: Edges = {}
    for path in sorted(folder.glob(PATTERN)):
        rank = rank_of(path)
        for row in metrics_file.read(path) if rank is not None else ():
            add(edges, rank or 0, row)
    return dict(sorted(edges.items()))
