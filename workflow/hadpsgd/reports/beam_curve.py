"""The picture of word error rate against real-time factor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from hadpsgd.reports.curves import COLOURS, figure_of, finish

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Measured(Protocol):
    """What the picture needs of a beam: rates in percent, processor seconds a second of speech."""

    @property
    def beam(self) -> float: ...
    @property
    def wer(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def real_time_factor(self) -> float: ...
    @property
    def search_real_time_factor(self) -> float: ...


def draw(points: Sequence[Measured], name: str) -> Figure:
    """Scores and search together (with intervals and beams), and the search alone."""
    from matplotlib.ticker import LogLocator, NullLocator

    figure, [axis] = figure_of(
        1, "real-time factor (processor seconds a second of speech)", width=6.4
    )
    rates = [point.wer for point in points]
    spread = [[p.wer - p.low for p in points], [p.high - p.wer for p in points]]
    both = [point.real_time_factor for point in points]
    axis.errorbar(
        both, rates, yerr=spread, color=COLOURS[0], ecolor=COLOURS[0] + "55", capsize=3,
        marker="o", markersize=4, label="scores and search",
    )  # fmt: skip
    search = [point.search_real_time_factor for point in points]
    axis.plot(search, rates, color=COLOURS[1], marker="o", markersize=3, label="search alone")
    for point in points:
        place = (point.real_time_factor, point.wer)
        axis.annotate(
            f"{point.beam:g}", place, xytext=(5, 5), textcoords="offset points", fontsize=8
        )
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter("{x:.3g}")
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_ylim(bottom=0)
    finish([axis], [f"{name}: word error rate %, by beam; bars: 95 % intervals"])
    return figure
