"""Pictures of an alignment: phone durations, silence, fits of utterances."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hadpsgd.alignment.views import FRAME_SECONDS, Durations, low_outliers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BLUE, _RED, _INK, _GRID = "#2b85d0", "#d1495b", "#22262b", "#c9ced4"
_COLUMNS = 6
_SHOWN_FRAMES = 40
_NAMED = 8


def durations(found: Durations) -> Figure:
    """A histogram of durations for every phone; the last bar holds all that is longer."""
    names = sorted(found.counts)
    rows = max(1, -(-len(names) // _COLUMNS))
    figure, axes = _figure(rows, _COLUMNS, (1.9 * _COLUMNS, 1.15 * rows + 0.6))
    for axis, name in zip(axes.flat, names, strict=False):
        counts = found.counts[name]
        bars = np.append(counts[1:_SHOWN_FRAMES], counts[_SHOWN_FRAMES:].sum())
        times = np.arange(1, _SHOWN_FRAMES + 1) * FRAME_SECONDS
        edges = np.append(times, times[-1] + FRAME_SECONDS) - FRAME_SECONDS / 2
        # one shape, where axis.bar draws forty: two thirds of the time of the command
        axis.stairs(bars / max(bars.sum(), 1), edges, fill=True, color=_BLUE)
        middle = found.median(name)
        axis.axvline(min(middle, times[-1]), color=_RED, linewidth=1)
        axis.set_title(f"{name}  n={counts.sum():,}, {middle * 1000:.0f} ms", fontsize=7,
                       loc="left", color=_INK, pad=2)  # fmt: skip
        axis.set_yticks([])
        axis.set_ylim(bottom=0)
        axis.set_xlim(0, times[-1] + FRAME_SECONDS)
    for axis in axes.flat[len(names) :]:
        axis.set_visible(False)
    figure.supxlabel("duration in seconds; red: median; last bar: longer", fontsize=8, color=_INK)
    return figure


def silence(found: Durations) -> Figure:
    """How many utterances have which share of silence."""
    figure, axes = _figure(1, 1, (5.2, 3.2))
    axis = axes[0, 0]
    axis.hist(list(found.silence.values()), bins=np.linspace(0, 1, 41), color=_BLUE)
    axis.axvline(found.silence_share, color=_RED, linewidth=1.2)
    title = f"silence: {100 * found.silence_share:.1f} % of {found.frames:,} frames (red)"
    axis.set_title(title, fontsize=10, loc="left", color=_INK)
    axis.set_xlabel("share of silence in an utterance", fontsize=9, color=_INK)
    axis.set_ylabel("utterances", fontsize=9, color=_INK)
    return figure


def fits(found: Mapping[str, float]) -> Figure:
    """How all utterances fit, the worst first; outliers in red, the worst ones named."""
    outliers, limit = low_outliers(found)
    figure, axes = _figure(1, 1, (5.8, 3.4))
    axis = axes[0, 0]
    ordered = sorted(found.items(), key=lambda item: item[1])
    values = np.array([value for _, value in ordered])
    places = np.arange(len(values))
    low = values < limit
    axis.plot(places[~low], values[~low], ".", markersize=3, color=_BLUE)
    axis.plot(places[low], values[low], ".", markersize=6, color=_RED)
    axis.axhline(limit, color=_RED, linewidth=0.8, linestyle="--")
    named = "\n".join(f"{each.utterance}  {each.score:.2f}" for each in outliers[:_NAMED])
    if len(outliers) > _NAMED:
        named += f"\nand {len(outliers) - _NAMED} others"
    axis.text(0.03, 0.96, named, transform=axis.transAxes, fontsize=7, ha="left", va="top",
              color=_RED)  # fmt: skip
    axis.set_title(f"{len(outliers)} of {len(found)} utterances are outliers (below {limit:.2f})",
                   fontsize=10, loc="left", color=_INK)  # fmt: skip
    axis.set_xlabel("utterances, in order of their fit", fontsize=9, color=_INK)
    axis.set_ylabel("log-posterior of the aligned states a frame", fontsize=9, color=_INK)
    return figure


def _figure(rows: int, columns: int, size: tuple[float, float]) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure  # half a second: only where pictures are drawn

    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.tick_params(colors=_INK, labelsize=6 if rows > 1 else 8, length=2)
        axis.spines[["top", "right"]].set_visible(False)
        axis.spines[["left", "bottom"]].set_color(_GRID)
    return figure, axes
