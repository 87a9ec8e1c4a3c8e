"""Stragglers: how much longer a run takes with slow learners, and where its loss ends."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hadpsgd.paper import pictures
from hadpsgd.paper.blocks import NOTHING, Picture, Section, Table, Value, name
from hadpsgd.paper.cells import Row, ids
from hadpsgd.planning.cluster import Cluster, Compute, Link
from hadpsgd.planning.model import STRATEGIES, Team, seconds_a_batch

FREE = Link(bandwidth=1e15)
"""A link that costs nothing: what is slow here is a learner."""


def section(rows: Sequence[Row]) -> Section:
    """The part of the page, of the rows of its grids."""
    usual = {row.strategy: row for row in rows if trouble(row) == NOTHING}
    headings = ["strategy", "learners", "slow", "hours", "times as long", "model of time",
                "held-out loss", "loss, % of that without"]  # fmt: skip
    return Section(
        title="Stragglers",
        claim=(
            "Fixed and randomised rings cope with slow learners; strategies that wait for all go "
            "at the slowest one's pace (T). T's numbers are not known here."
        ),
        found=_found(rows, usual),
        tables=[Table(headings=headings, rows=[_line(row, usual) for row in rows])],
        pictures=_pictures(rows, usual),
        notes=[
            "Hours are those of the virtual clock, with the times of gradients and links that the "
            "config gives. The model of time (docs/time-model.md) has one learner slower and links "
            "that cost nothing. Learners that mix asynchronously share their work: a slow one "
            "does less of it."
        ],
    )


def trouble(row: Row) -> str:
    """What is put into its learners' times, or a dash."""
    slow = f"{row.slow:g}x" if row.slow > 1 else ""
    return ", ".join(text for text in (slow, random(row)) if text) or NOTHING


def random(row: Row) -> str:
    """The distribution of its learners' times from step to step; empty for none."""
    kind, deviation = (row.params[f"run.injected.{key}"] for key in ("spread", "deviation"))
    return "" if kind == "none" else f"{kind} {float(deviation):g}".removesuffix(" 0")


def longer(row: Row, usual: Row | None) -> list[float]:
    """How many times as long its runs take as those without slow learners; empty if not known."""
    before = [run.seconds for run in usual.runs] if usual else []
    usually = sum(before) / len(before) if before else math.nan
    found = [run.seconds / usually for run in row.runs]
    return found if all(map(math.isfinite, found)) else []


def modelled(row: Row) -> float:
    """The same by the model of time; NaN where it does not know the strategy or the trouble."""
    strategy = row.params["run.strategy"]
    if strategy not in STRATEGIES or random(row):
        return math.nan
    size = int(row.params["run.super_learner"])
    team = Team(
        strategy=strategy,
        batch=row.batch,
        learners=row.learners,
        super_learner=size,
        schedule=row.params["run.schedule"],
    )
    each = Compute(each=float(row.params["run.virtual.compute_seconds"]) / team.own_batch)

    def seconds(slowest: float) -> float:
        cluster = Cluster(
            nodes=1, gpus=row.learners, compute=each, inside=FREE, between=FREE, slowest=slowest
        )
        return seconds_a_batch(team, cluster, 1.0)

    return seconds(row.slow) / seconds(1.0)


def _line(row: Row, usual: dict[str, Row]) -> list[Value]:
    before = usual.get(row.strategy)
    times, model = longer(row, before), modelled(row)
    told = f"{sum(times) / len(times):.2f}" if times else NOTHING
    more = row.loss / before.loss - 1 if before else math.nan
    finite = math.isfinite(more)
    return [
        name(row.strategy),
        name(row.learners),
        name(trouble(row)),
        row.value(lambda run: run.seconds / 3600, "%.3f"),
        Value(text=told, kind=row.kind if times else None, runs=row.ids),
        Value(text=f"{model:.2f}", kind="modelled")
        if math.isfinite(model)
        else Value(text=NOTHING),
        row.value(lambda run: run.loss, "%.3f"),
        Value(text=f"{100 * more:+.1f}" if finite else NOTHING, kind=row.kind if finite else None),
    ]


def _found(rows: Sequence[Row], usual: dict[str, Row]) -> list[str]:
    """Of each strategy, with the slowest learner that it was given."""
    said = []
    for strategy, before in usual.items():
        slow = [row for row in rows if row.strategy == strategy and row.slow > 1]
        worst = max(slow, key=lambda row: row.slow, default=None)
        times = longer(worst, before) if worst else []
        if worst is None or not times:
            continue
        end = (
            f"its held-out loss changes by {100 * (worst.loss / before.loss - 1):+.1f} %"
            if math.isfinite(worst.loss) and math.isfinite(before.loss)
            else "it diverges"
        )
        said.append(
            f"With one learner {worst.slow:g} times slower {strategy} takes "
            f"{sum(times) / len(times):.2f} times as long, and {end}."
        )
    return said


def _pictures(rows: Sequence[Row], usual: dict[str, Row]) -> list[Picture]:
    times: list[pictures.Line] = []
    losses: list[pictures.Line] = []
    for strategy, before in usual.items():
        own = [row for row in rows if row.strategy == strategy and not random(row)]
        own.sort(key=lambda row: row.slow)
        known = [(row, longer(row, before)) for row in own]
        times.append((strategy, [(row.slow, sum(t) / len(t)) for row, t in known if t]))
        losses.append((strategy, [(row.slow, row.loss) for row in own if math.isfinite(row.loss)]))
    if not any(points for _, points in times):
        return []
    figure = pictures.curves(
        [("hours, times those without", times), ("held-out loss", losses)],
        "",
        below="times slower, one learner",
        log=(True, False),
        log_x=True,
    )
    caption = "One slow learner: how much longer training takes, and its held-out loss."
    return [Picture(name="stragglers", figure=figure, caption=caption, runs=ids(rows))]
