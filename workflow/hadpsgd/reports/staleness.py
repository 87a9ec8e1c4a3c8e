"""Picture of the staleness of each edge, one panel a run that mixes weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hadpsgd.reports.curves import COLOURS, figure_of, finish
from hadpsgd.tracking import edges
from hadpsgd.tracking.edges import Edges
from hadpsgd.tracking.results import RunResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMED = 24
"""Edges, at most, that have their names beside them."""


def figure(results: Sequence[RunResult]) -> Figure | None:
    """Histogram of each edge as a row of shades; None if no run has mixed weights.

    Of runs that differ in their seed alone, the first that has some.
    """
    of_rows: dict[str, tuple[str, Edges]] = {}
    for result in results:
        if result.row not in of_rows and (run := edges.read(result.folder)):
            of_rows[result.row] = (result.run.id, run)
    found = list(of_rows.values())
    if not found:
        return None
    picture, axes = figure_of(len(found), "updates ahead of the partner")
    for axis, (_, run) in zip(axes, found, strict=True):
        _panel(axis, run)
    finish(axes, [name for name, _ in found])
    return picture


def table(run: Edges) -> tuple[list[int], np.ndarray]:
    """Lags from the smallest to the largest, and each edge's share of its mixes [edges, lags]."""
    lags = [lag for counts in run.values() for lag in counts]
    span = list(range(min(lags), max(lags) + 1))
    rows = [[counts[lag] / counts.total() for lag in span] for counts in run.values()]
    return span, np.array(rows)


def _panel(axis: Any, run: Edges) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    span, shares = table(run)
    shades = LinearSegmentedColormap.from_list("share", ["#ffffff00", COLOURS[0]])
    extent = (span[0] - 0.5, span[-1] + 0.5, len(run) - 0.5, -0.5)
    axis.imshow(
        shares, aspect="auto", cmap=shades, vmin=0, extent=extent, interpolation="nearest", zorder=2
    )
    if len(run) <= NAMED:
        axis.set_yticks(range(len(run)), [f"{rank} \N{LEFTWARDS ARROW} {j}" for rank, j in run])
    else:
        axis.set_yticks([])
