"""Loss against seconds: how long each training took, and what a slow learner costs it.

Seconds are measured, or those of a run's virtual clock: each kind has a panel of its own, since one
cannot be set against the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hadpsgd.config.training import Run
from hadpsgd.reports.curves import (
    LOSSES,
    criterion,
    drawn,
    figure_of,
    finish,
    limit,
    series,
    thinned,
)
from hadpsgd.tracking.results import RunResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CURVES = ("loss", "heldout_loss")


def clock(run: Run) -> str:
    """The metric that holds a run's seconds."""
    return "virtual_seconds" if run.simulated else "seconds"


def spent(result: RunResult) -> float | None:
    """Seconds of training, of all its attempts; virtual ones of a run in virtual time."""
    name = clock(result.run)
    told = [row[name] for row in result.metrics if name in row]
    if result.run.simulated:  # of the last learner to end; rows are the first one's
        told = [result.summary[name]] if name in result.summary else told
    elif not told and name in result.summary:  # before rows had them: of its last attempt
        told = [result.summary[name]]
    return max(told, default=None)


def figure(results: Sequence[RunResult]) -> Figure:
    """Training (thin) and held-out (thick) loss of every run, one panel for each kind of time and
    criterion."""
    lines = [
        line for line in drawn(results) if any(clock(line[0].run) in r for r in line[0].metrics)
    ]
    kinds = list(dict.fromkeys(_kind(result.run) for result, _, _ in lines))
    picture, axes = figure_of(max(1, len(kinds)), "seconds of training")
    titles: list[str] = []
    for axis, (simulated, loss) in zip(axes, kinds, strict=bool(kinds)):
        panel = [line for line in lines if _kind(line[0].run) == (simulated, loss)]
        _panel(axis, panel)
        axis.set_xlabel(f"{'virtual' if simulated else 'measured'} seconds of training")
        titles.append(f"{loss}; " + title([result.run for result, _, _ in panel]))
    finish(axes, titles or ["loss"], every=True)
    return picture


def _kind(run: Run) -> tuple[bool, str]:
    """Whether its seconds are virtual, and what its loss is called."""
    return run.simulated, LOSSES[of] if (of := criterion(run)) else "loss"


def _panel(axis: Any, lines: Sequence[tuple[RunResult, str, str | None]]) -> None:
    for result, colour, label in lines:
        train, heldout = (
            series(result.metrics, name, against=clock(result.run)) for name in _CURVES
        )
        axis.plot(*thinned(*train), color=colour, linewidth=0.9, alpha=0.65)
        named = label and label + manner(result.run)
        axis.plot(*heldout, color=colour, linewidth=1.8, marker="o", markersize=3, label=named)
    axis.set_xlim(left=0)
    limit(axis, _CURVES, [result for result, _, _ in lines])


def slowed(run: Run) -> str:
    """`learner 3 is 5 times slower`; empty where none is slowed on purpose."""
    each = [f"learner {i} is {f:g} times slower" for i, f in run.injected.slow_learners.items()]
    return " and ".join(each)


def manner(run: Run) -> str:
    """Whether learners wait for a slow one, for a legend; empty where there is none."""
    if not slowed(run):
        return ""
    return ": all wait for it" if waits(run) else ": nobody waits for it"


def waits(run: Run) -> bool:
    """Whether a run's (super-)learners wait for each other."""
    return run.kind is None or run.kind.synchronous


def title(runs: Sequence[Run]) -> str:
    """What holds for the runs of a panel."""
    each = {slowed(run) for run in runs}
    if each == {""}:
        return "no learner slowed"
    return each.pop() if len(each) == 1 else "some learners slowed"


def explanations(results: Sequence[RunResult]) -> str:
    """`sentences` as a list in Markdown."""
    return "".join(f"- {sentence}\n" for sentence in sentences(results))


def sentences(results: Sequence[RunResult]) -> list[str]:
    """One for every run with a learner slowed on purpose: how it was done, and what it cost."""
    found = []
    for result in results:
        run, taken, slow = result.run, spent(result), slowed(result.run)
        if taken is None or not slow:
            continue
        who = "super-learners" if run.super_learner > 1 else "learners"
        wait = "wait for each other" if waits(run) else "do not wait for each other"
        rest = "" if waits(run) else ", and do what a slow one leaves"
        loss = result.summary.get("heldout_loss")
        end = "" if loss is None else f", held-out loss {loss:.3f} at their end"
        found.append(
            f"{run.id}: {slow}, on purpose; the {who} {wait}{rest}. "
            f"{taken:.0f} {'virtual ' * run.simulated}seconds{end}."
        )
    return found
