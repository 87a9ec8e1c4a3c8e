"""Time: hours and speed-up by the model of time (docs/time-model.md), beside the papers'."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hadpsgd.paper import pictures
from hadpsgd.paper.blocks import NOTHING, Picture, Section, Table, Value, name, paper
from hadpsgd.planning import papers
from hadpsgd.planning.cluster import Cluster, Link
from hadpsgd.planning.model import Strategy, Team, hours

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
BATCH = 8192
STRATEGIES: tuple[Strategy, ...] = ("ssgd", "adpsgd", "rand", "d1d", "hadpsgd")
NODE = 8
"""GPUs of today's nodes, and of a super-learner on them."""
TODAY_GRADIENT, TODAY_BATCH = 0.03, 128
"""Seconds of a gradient of so many subsequences: a third of a V100's. Assumed."""
TODAY_LINK = 50e9
"""Bytes a second of 400 Gb/s."""
TODAY_INSIDE = 300e9
"""Bytes a second of a GPU to the others of its node. Assumed."""
CLOSE = 0.20


def section() -> Section:
    """The part of the page; no run enters."""
    figures = papers.figures()
    worst = max(figures, key=lambda figure: abs(figure.error))
    fitted = sum(figure.fitted for figure in figures)
    close = sum(abs(figure.error) <= CLOSE for figure in figures)
    rows = [
        [
            name(figure.name),
            name(figure.source),
            paper(f"{figure.paper:g} {figure.unit}"),
            Value(text=f"{figure.model:.2f} {figure.unit}", kind="modelled"),
            name(f"{100 * figure.error:+.1f} %"),
            name("fitted" if figure.fitted else "predicted"),
        ]
        for figure in figures
    ]
    headings = ["", "source", "papers", "model", "error", "how"]
    clusters = {"V100, 100 Gb/s (E)": v100s, "today, 400 Gb/s": today}
    lines = {title: _hours(make) for title, make in clusters.items()}
    return Section(
        title="Time",
        claim=(
            "Hours fall with learners: 192 of one V100 (a talk on H), 5.2 of 64 (H), 1.98 of 128 "
            "(E)."
        ),
        found=[
            f"{close} of {len(figures)} figures of the papers are met within {100 * CLOSE:g} % "
            f"({fitted} of them were fitted); the furthest is {worst.name} ({worst.source}) at "
            f"{100 * worst.error:+.1f} %."
        ],
        tables=[
            Table(headings=headings, rows=rows, left=2),
            *(_table(title, made) for title, made in lines.items()),
        ],
        pictures=_pictures(lines),
        notes=[
            f"Hours of 16 epochs of 2000 hours of speech at a total batch of {BATCH}, the papers' "
            "model; speed-up is over one learner at that batch. Nodes of 6 V100s (E) and of 8 GPUs "
            "today; super-learners are nodes. Today's gradient and links inside a node are "
            "assumed: `hadpsgd plan --measure` takes yours. No network or GPU has been measured "
            "for this page."
        ],
    )


def v100s(learners: int) -> Cluster:
    """E's machines, as fitted."""
    fitted = papers.fit()
    nodes = -(-learners // papers.NODE_OF_E)
    return papers.cluster_of_e(fitted.compute, fitted.contention, nodes=nodes)


def today(learners: int) -> Cluster:
    """Nodes of 8 GPUs with 400 Gb/s, half of which is reached."""
    fitted = papers.fit()
    return Cluster(
        nodes=-(-learners // NODE),
        gpus=NODE,
        compute=fitted.compute.taking(seconds=TODAY_GRADIENT, batch=TODAY_BATCH),
        inside=Link(bandwidth=TODAY_INSIDE),
        between=Link(bandwidth=TODAY_LINK * papers.EFFICIENCY),
        contention=fitted.contention,
    )


Hours = dict[str, dict[int, float]]
"""Strategy -> learners -> hours."""


def _hours(cluster: Callable[[int], Cluster]) -> Hours:
    found: Hours = {}
    for strategy in STRATEGIES:
        for learners in SIZES[1:]:
            size = cluster(learners).gpus if strategy == "hadpsgd" else 1
            whole = learners - learners % size
            if whole < 2 * size:
                continue  # one super-learner is SSGD
            team = Team(
                strategy=strategy,
                batch=BATCH // whole * whole,
                learners=whole,
                super_learner=size,
                schedule="random-ring" if strategy == "rand" else "ring",
            )
            taken = hours(team, cluster(learners), papers.SWB2000)
            found.setdefault(strategy, {})[whole] = taken
    alone = hours(Team(strategy="single", batch=BATCH), cluster(1), papers.SWB2000)
    return {"single": {1: alone}, **found}


def _table(title: str, found: Hours) -> Table:
    sizes = sorted({size for own in found.values() for size in own})
    alone = found["single"][1]
    return Table(
        headings=[title, *(f"{size}" for size in sizes)],
        rows=[
            [
                name(strategy),
                *(
                    Value(
                        text=f"{own[size]:.2f} h",
                        kind="modelled",
                        note=f"{alone / own[size]:.1f} x",
                    )
                    if size in own
                    else Value(text=NOTHING)
                    for size in sizes
                ),
            ]
            for strategy, own in found.items()
        ],
    )


def _pictures(lines: dict[str, Hours]) -> Sequence[Picture]:
    panels: list[pictures.Panel] = []
    for title, found in lines.items():
        drawn: list[pictures.Line] = [
            (strategy, [(float(size), value) for size, value in own.items()])
            for strategy, own in found.items()
            if len(own) > 1
        ]
        if not panels:
            said = [(float(size), value) for size, value in papers.TABLE_3.items()]
            drawn.append(("d1d, paper", said))
        panels.append((title, drawn))
    figure = pictures.curves(
        panels, "hours", below="learners", log=True, log_x=True, dashed="paper"
    )
    caption = "Hours by the model; dashed: E, Table 3. Modelled: no run enters."
    return [Picture(name="time", figure=figure, caption=caption)]
