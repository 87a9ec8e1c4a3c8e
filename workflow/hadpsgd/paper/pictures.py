"""Pictures of the page, in the style of the reports'."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hadpsgd.reports.curves import COLOURS, INK, figure_of, finish

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Line = tuple[str, list[tuple[float, float]]]
"""A name and points."""
Panel = tuple[str, list[Line]]
"""A title and lines."""
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
FAR = 1.5
"""Times the largest first value: beyond that a line has diverged."""
WIDTH = 3.4
"""Inches of a panel, where there are many."""


def curves(
    panels: Sequence[Panel],
    unit: str,
    *,
    below: str = "epoch",
    log: bool | tuple[bool, ...] = False,
    log_x: bool = False,
    dashed: str = "",
    diverging: bool = False,
) -> Figure:
    """Panels of lines; a name has one colour in all of them.

    Args:
        panels: what to draw.
        unit: on the left of the first panel.
        below: under the axes.
        log: whether values are drawn on a logarithmic scale, of all panels or of each.
        log_x: the same of what is below.
        dashed: names that have this in them are drawn dashed, in the colour of what precedes it.
        diverging: a line that rises far above where all begin leaves the picture, and does not
            press the others flat.
    """
    figure, axes = figure_of(len(panels), below, width=WIDTH if len(panels) > 2 else 4.6)
    scales = log if isinstance(log, tuple) else (log,) * len(panels)

    def base(name: str) -> str:
        return name.partition(f", {dashed}")[0] if dashed else name

    names = list(dict.fromkeys(base(name) for _, lines in panels for name, _ in lines))
    for axis, (_, lines), scaled in zip(axes, panels, scales, strict=True):
        for name, points in lines:
            colour = COLOURS[names.index(base(name)) % len(COLOURS)]
            sound = [(x, y) for x, y in points if math.isfinite(y) and (y > 0 or not scaled)]
            style = "--" if base(name) != name else "-"
            if sound:
                axis.plot(
                    [x for x, _ in sound], [y for _, y in sound], style, color=colour, label=name,
                    linewidth=1.5, marker="o" if len(points) < 20 else None, markersize=3,
                )  # fmt: skip
        if scaled:
            axis.set_yscale("log")
            _readable(axis.yaxis)
        if diverging:
            _cut(axis, [points for _, points in lines])
        if log_x:
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_formatter(_plainly)
    axes[0].set_ylabel(unit, fontsize=9)
    _finish(figure, axes, panels)
    return figure


def _cut(axis: Axes, lines: Sequence[Sequence[tuple[float, float]]]) -> None:
    values = [[y for _, y in points if math.isfinite(y)] for points in lines]
    begins = [own[0] for own in values if own]
    if begins and max(map(max, filter(None, values))) > FAR * max(begins):
        low = min(map(min, filter(None, values)))
        axis.set_ylim(low - 0.05 * (max(begins) - low), 1.1 * max(begins))


def _finish(figure: Figure, axes: Sequence[Axes], panels: Sequence[Panel]) -> None:
    """Titles, and beside the panels one legend of all names, which so lies over no curve."""
    finish(axes, [title for title, _ in panels], legend=False)
    drawn = [axis.get_legend_handles_labels() for axis in axes]
    found = {name: handle for own in drawn for handle, name in zip(*own, strict=True)}
    order = list(dict.fromkeys(name for _, lines in panels for name, _ in lines if name in found))
    if order:
        figure.legend(
            [found[name] for name in order], order, loc="outside right center", frameon=False,
            fontsize=9, labelcolor=INK,
        )  # fmt: skip


def cloud(panels: Sequence[Panel], *, below: str) -> Figure:
    """Panels of points on logarithmic scales, a name in one colour in all of them."""
    figure, axes = figure_of(len(panels), below)
    names = list(dict.fromkeys(name for _, lines in panels for name, _ in lines))
    for axis, (_, lines) in zip(axes, panels, strict=True):
        for name, points in lines:
            sound = [(x, y) for x, y in points if 0 < x < math.inf and 0 < y < math.inf]
            if sound:
                colour = COLOURS[names.index(name) % len(COLOURS)]
                xs, ys = zip(*sound, strict=True)
                axis.plot(xs, ys, "o", color=colour, label=name, markersize=4, alpha=0.8)
        axis.set_xscale("log")
        axis.set_yscale("log")
        _readable(axis.xaxis)
        _readable(axis.yaxis)
    _finish(figure, axes, panels)
    return figure


def _readable(axis: Axis) -> None:
    """Ticks of a logarithmic axis as numbers, more within a decade the fewer there are."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator

    low, high = axis.get_view_interval()
    few = high < 300 * low
    locator = LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,))
    axis.set_major_locator(locator)
    axis.set_minor_formatter(NullFormatter())
    if sum(low <= tick <= high for tick in locator.tick_values(low, high)) < 3:
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(_plainly)


def _plainly(value: float, _: object) -> str:
    """A tick as people write it; powers of ten where there would be many zeros."""
    if value > 0 and not 1e-3 <= value < 1e5 and math.isclose(math.log10(value) % 1, 0):
        return "10" + f"{round(math.log10(value))}".translate(_RAISED)
    return f"{value:g}"


def heat(panels: Sequence[tuple[str, dict[tuple[float, float], float]]]) -> Figure:
    """Panels of numbers over rate (up) and batch (right); what diverged is left white with a cross.

    Args:
        panels: a title, and (batch, rate) -> held-out loss, infinite where it diverged.
    """
    from matplotlib.colors import Normalize

    figure, axes = figure_of(len(panels), "total batch")
    points = [key for _, cells in panels for key in cells]
    batches, rates = (sorted({key[i] for key in points}) for i in (0, 1))
    sound = [v for _, cells in panels for v in cells.values() if math.isfinite(v)]
    low, high = min(sound, default=0.0), max(sound, default=1.0)
    scale = Normalize(low, high if high > low else low + 1)
    for axis, (_, cells) in zip(axes, panels, strict=True):
        values = [[cells.get((batch, rate), math.nan) for batch in batches] for rate in rates]
        shown = [[v if math.isfinite(v) else math.nan for v in row] for row in values]
        axis.imshow(shown, origin="lower", aspect="auto", cmap="viridis_r", norm=scale)
        axis.grid(visible=False)
        axis.set_xticks(range(len(batches)), [f"{batch:g}" for batch in batches])
        axis.set_yticks(range(len(rates)), [f"{rate:g}" for rate in rates])
        for i, row in enumerate(values):
            for j, value in enumerate(row):
                text = "" if math.isnan(value) else f"{value:.2f}" if math.isfinite(value) else "x"
                dark = math.isfinite(value) and scale(value) > 0.5
                colour = "white" if dark else "#22262b" if math.isfinite(value) else "#808890"
                axis.text(j, i, text, ha="center", va="center", fontsize=8, color=colour)
    axes[0].set_ylabel("learning rate", fontsize=9)
    finish(axes, [title for title, _ in panels])
    return figure
