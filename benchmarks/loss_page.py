"""Tables and the picture of `time_to_loss.py`."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
from loss_race import SLOW, Result
from PIL import Image

matplotlib.use("Agg")

from matplotlib import pyplot as plt

Found = Mapping[str, Mapping[str, Sequence[Result]]]
"""Scenario -> contestant -> repetitions."""
TITLE = "# Time to the same held-out loss"
INTRODUCTION = """\
- s to the loss: until the mean of the learners' weights has the held-out loss for the first time.
- s for the work: until the gradients of all learners together are as many as the run has.
- / equal: beside the same contestant where nothing is slow.
- 8 learners, each a process; hadpsgd 4x2: 4 super-learners of 2; 8x2 has 16 processes.
- gradients of the slow one: its share of all.
- mixes of the others: mixes a second of the learners that nothing slows, beside the same where
  nothing is slow.
- cores: kept busy by the contestant in the mean, start included.

How it is measured: [training beside its peers](training.md#time-to-the-same-loss).
"""


def page(
    found: Found,
    *,
    beside: Mapping[str, str],
    goal: float,
    limit: float,
    head: str,
    picture: str,
) -> str:
    """Markdown; `beside`: scenario -> the one that it is compared with."""
    loads = [result.load for rows in found.values() for row in rows.values() for result in row]
    load = (
        f"Held-out loss {goal:g}. Load of the machine when races began (processes that ran or "
        f"waited, over the last minute): {min(loads):.1f} to {max(loads):.1f}, median "
        f"{median(loads):.1f}."
    )
    first = [line for title in found for line in summary(title, found, beside[title], goal, limit)]
    parts = [TITLE, "", *first, INTRODUCTION, head, "", load, ""]
    if picture:
        parts += [f"![Held-out loss against seconds]({picture})", ""]
    for title, rows in found.items():
        usual = found.get(beside[title], {}) if beside[title] != title else {}
        parts += [f"## {title.capitalize()}", "", table(rows, usual, goal, limit), ""]
    return "\n".join(parts)


def summary(title: str, found: Found, other: str, goal: float, limit: float) -> list[str]:
    """What a scenario came to, in times of another."""
    usual = found.get(other, {})
    if title == other or not usual:
        return []
    beside = [
        (
            name,
            times(
                [r.reaches(goal) for r in row],
                [r.reaches(goal) for r in usual.get(name, [])],
                limit,
            )[-1],
        )
        for name, row in found[title].items()
    ]
    told = ", ".join(f"{name} {text}" for name, text in beside if text)
    return [f"**{title.capitalize()}**: time to the loss, in times of {other}: {told}.", ""]


def table(
    rows: Mapping[str, Sequence[Result]],
    usual: Mapping[str, Sequence[Result]],
    goal: float,
    limit: float,
) -> str:
    """One line a contestant."""
    lines = [
        "| | s to the loss | spread | / equal | s for the work | spread | / equal "
        "| gradients of the slow one | mixes of the others | last loss | cores |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        before = usual.get(name, [])
        cells = [
            name,
            *times([r.reaches(goal) for r in row], [r.reaches(goal) for r in before], limit),
            *times([r.done for r in row], [r.done for r in before], limit),
            f"{100 * median([r.steps[SLOW] / sum(r.steps) for r in row]):.1f} %",
            kept(row, before),
            f"{median([r.curve[-1][1] for r in row]):.3f}",
            f"{median([r.own_cores for r in row]):.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def times(row: Sequence[float], before: Sequence[float], limit: float) -> list[str]:
    """Median, spread, beside another scenario's; where the limit came first, what is known."""
    middle, usual = median(row), median(before)
    if middle == float("inf"):
        return [f"over {limit:g}", "", f"over {limit / usual:.1f}" if before else ""]
    worst = f"{max(row):.2f}" if max(row) < float("inf") else f"over {limit:g}"
    return [f"{middle:.2f}", f"{min(row):.2f}-{worst}", f"{middle / usual:.2f}" if before else ""]


def kept(row: Sequence[Result], before: Sequence[Result]) -> str:
    """Mixes of the learners that nothing slows, beside another scenario's."""
    usual = median([pace(result) for result in before])
    return f"{100 * median([pace(result) for result in row]) / usual:.1f} %" if usual > 0 else ""


def pace(result: Result) -> float:
    """Mixes a second of a learner that nothing slows."""
    others = [count for rank, count in enumerate(result.mixes) if rank != SLOW]
    return statistics.mean(others) / result.span


def median(values: Sequence[float]) -> float:
    """NaN of none."""
    return statistics.median(values) if values else float("nan")


COLUMNS = 4
"""Scenarios side by side."""


def picture(file: Path, found: Found, goal: float) -> None:
    """Loss against seconds, one line a contestant; of each the repetition in the middle."""
    names = list(dict.fromkeys(name for rows in found.values() for name in rows))
    columns = min(COLUMNS, len(found))
    height = -(-len(found) // columns)
    size = (3.5 * columns, 3 * height + 0.6)
    figure, axes = plt.subplots(height, columns, figsize=size, layout="constrained", squeeze=False)
    for place in axes.flat[len(found) :]:
        place.set_axis_off()
    lines = {}
    for place, (title, rows) in zip(axes.flat, found.items(), strict=False):
        for name, row in rows.items():
            number = names.index(name)  # a colour stands for the same contestant everywhere
            middle = sorted(row, key=lambda result: result.reaches(goal))[len(row) // 2]
            seconds, losses = zip(*middle.curve, strict=True)
            (lines[name],) = place.plot(
                seconds, losses, color=f"C{number % 10}", ls="-:"[number // 10]
            )
        place.axhline(goal, color="grey", lw=0.5)
        place.set(title=title, xlabel="seconds", xscale="log", xlim=(1, None))
    axes[0, 0].set(ylabel="held-out loss")
    handles = [lines[name] for name in names]
    figure.legend(handles, names, loc="outside lower center", ncols=6, fontsize=9)
    figure.savefig(file, dpi=80, pil_kwargs={"optimize": True})
    plt.close(figure)
    Image.open(file).convert("P", palette=Image.Palette.ADAPTIVE).save(file, optimize=True)
