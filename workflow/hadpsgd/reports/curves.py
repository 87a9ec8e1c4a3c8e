"""Pictures of training: losses, frame accuracy and learning rate against epochs."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hadpsgd.config import Config, settings_of
from hadpsgd.config.stage import StageRun
from hadpsgd.config.training import Run
from hadpsgd.files import atomic_file
from hadpsgd.tracking.metrics_file import Row
from hadpsgd.tracking.results import RunResult, State
from hadpsgd.training.rate import rate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOSSES = {
    "": "cross-entropy per frame, nats",
    "lfmmi": "lattice-free MMI loss per frame",
}
"""By criterion what a run's loss is: each has an axis of its own, since they cannot be compared."""
COLOURS = ("#2b85d0", "#d1495b", "#2a9d6f", "#b07d12", "#7b5ea7", "#5c6b73")
"""Of the runs, in order; again from the first after the last."""
INK = "#22262b"
"""Of text: `inline_svg` makes it the page's."""
_GRID = "#c9ced4"
_RULE_POINTS = 2000
_SMOOTH = 30
"""Points to which a training curve is averaged, so that lines can be told apart."""


def losses(results: Sequence[RunResult]) -> Figure:
    """Training (thin) and held-out (thick) loss, held-out frame accuracy of every run.

    Losses of each criterion have a panel. Runs that differ in their seed alone have one colour.
    """
    kinds = criteria(results) or [""]
    figure, axes = figure_of(len(kinds) + 1)
    panels = [("loss", "heldout_loss", [kind]) for kind in kinds]
    for axis, (train, heldout, shown) in zip(
        axes, [*panels, ("", "heldout_accuracy", kinds)], strict=True
    ):
        lines = [line for line in drawn(results) if criterion(line[0].run) in shown]
        for result, colour, label in lines:
            if train:
                xs, ys = thinned(*series(result.metrics, train))
                axis.plot(xs, ys, color=colour, linewidth=0.9, alpha=0.65)
            xs, ys = series(result.metrics, heldout)
            axis.plot(xs, ys, color=colour, linewidth=1.8, marker="o", markersize=3, label=label)
        limit(axis, [name for name in (train, heldout) if name], [line[0] for line in lines])
    finish(axes[:-1], [LOSSES[kind] for kind in kinds], every=True)
    finish(axes[-1:], ["held-out frame accuracy"], legend=False)
    return figure


def criterion(run: Run) -> str:
    """What a run minimises: that of its stage, empty for cross-entropy."""
    return run.stage.criterion if isinstance(run, StageRun) else ""


def criteria(results: Sequence[RunResult]) -> list[str]:
    """Those of the runs, in their order."""
    return list(dict.fromkeys(criterion(result.run) for result in results))


def drawn(results: Sequence[RunResult]) -> Iterator[tuple[RunResult, str, str | None]]:
    """Each run, its colour and its name in the legend: those of one row have both in common."""
    rows = list(dict.fromkeys(result.row for result in results))
    named = set()
    for result in results:
        label = None if result.row in named else result.row
        named.add(result.row)
        yield result, COLOURS[rows.index(result.row) % len(COLOURS)], label


def limit(axis: Any, names: Sequence[str], results: Sequence[RunResult]) -> None:
    """Let a run that diverged leave the picture, and not press the others flat at its bottom."""
    sound = [result for result in results if result.state is not State.DIVERGED]
    if len(sound) == len(results):
        return
    values = [y for result in sound for name in names for y in series(result.metrics, name)[1]]
    values = [value for value in values if math.isfinite(value)]
    if values:
        low, high = min(values), max(values)
        margin = 0.05 * (high - low) or 0.05 * abs(high) or 0.05
        axis.set_ylim(low - margin, high + margin)


def learning_rates(config: Config, results: Sequence[RunResult]) -> Figure:
    """The runs' rules (broad), and the rates that they recorded, which lie on them."""
    figure, [axis] = figure_of(1)
    trained = [settings_of(config, result.run.id).training for result in results]
    # most runs have one rule in common: drawn once
    rules = dict.fromkeys((t.learning_rate, t.batch, t.epochs) for t in trained)
    for number, (rule, batch, epochs) in enumerate(rules):
        moments = [epochs * point / _RULE_POINTS for point in range(_RULE_POINTS)]
        rates = [rate(rule, batch=batch, epoch=moment) for moment in moments]
        label = None if number else "rule" if len(rules) == 1 else "rules"
        axis.plot(moments, rates, color=_GRID, linewidth=5, label=label, solid_capstyle="butt")
    for index, (result, colour, label) in enumerate(drawn(results)):
        xs, ys = series(result.metrics, "lr")
        # runs of one rule lie on one another: dashes let all colours be seen
        dashes = (3 * index, (3, 3 * max(0, len(results) - 1)))
        axis.plot(xs, ys, color=colour, linestyle=dashes, linewidth=1.6, label=label)
    axis.set_ylim(bottom=0)
    finish([axis], ["learning rate"])
    return figure


def series(
    rows: Sequence[Row], name: str, *, against: str = "epoch"
) -> tuple[list[float], list[float]]:
    """Epochs (or what a curve is drawn `against`) and values; rows that lack one are left out."""
    pairs = [(row[against], row[name]) for row in rows if against in row and name in row]
    pairs.sort(key=lambda pair: pair[0])
    return [x for x, _ in pairs], [y for _, y in pairs]


def thinned(xs: list[float], ys: list[float]) -> tuple[list[float], list[float]]:
    """Means of neighbouring points, at most `_SMOOTH` of them."""
    size = -(-len(xs) // _SMOOTH) or 1
    groups = range(0, len(xs), size)

    def mean(values: list[float], start: int) -> float:
        part = values[start : start + size]
        return sum(part) / len(part)

    return [mean(xs, start) for start in groups], [mean(ys, start) for start in groups]


def write_png(figure: Figure, path: Path) -> None:
    """The picture on white, for the README and Snakemake's report."""
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=140, facecolor="white")


def inline_svg(figure: Figure, label: str, *, name: str = "") -> str:
    """The picture as an SVG element that takes its ink and grid from the page's style.

    A `name` goes before its ids, which those of other pictures on the page would else share.
    """
    stream = io.StringIO()
    figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = text.replace(INK, "var(--ink)").replace(_GRID, "var(--line)")
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    if name:
        text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text)
    return re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', f'role="img" aria-label="{label}"', text)


def figure_of(panels: int, below: str = "epoch", *, width: float = 4.6) -> tuple[Figure, Any]:
    """Panels side by side, each `width` inches, what is `below` their axes; in our style."""
    import matplotlib as mpl  # half a second: only where pictures are drawn
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "hadpsgd"})
    figure = Figure(figsize=(width * panels, 3.2), layout="constrained")
    axes = figure.subplots(1, panels, squeeze=False)[0]
    for axis in axes:
        axis.set_xlabel(below, color=INK, fontsize=9)
        axis.grid(color=_GRID, linewidth=0.6)
        axis.tick_params(colors=INK, labelsize=8)
        if below == "epoch":
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.spines[["top", "right"]].set_visible(False)
        axis.spines[["left", "bottom"]].set_color(_GRID)
    return figure, axes


def finish(
    axes: Sequence[Any], titles: Sequence[str], *, every: bool = False, legend: bool = True
) -> None:
    """Titles, and a legend where there are labels: in the first panel, in `every` one, or none."""
    for axis, title in zip(axes, titles, strict=True):
        axis.set_title(title, fontsize=10, loc="left", color=INK)
    for axis in axes if every else axes[:1] if legend else ():
        if axis.get_legend_handles_labels()[1]:
            axis.legend(frameon=False, fontsize=9, labelcolor=INK)
