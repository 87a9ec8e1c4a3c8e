"""Learners: fixed ring, random ring, delay-by-one and super-learners as they grow in number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from hadpsgd.decentralized.topology import bounds
from hadpsgd.decentralized.topology.mixing import MixingSchedule
from hadpsgd.decentralized.topology.schedules import create
from hadpsgd.paper import claims, pictures
from hadpsgd.paper.blocks import NOTHING, Picture, Section, Table, Value, name, paper
from hadpsgd.paper.cells import Row, Trained, ids
from hadpsgd.scoring.seeds import p_over_seeds

TARGET = 1e-3
"""Consensus whose rounds the table shows."""


def section(rows: Sequence[Row], baseline: Row, sets: Sequence[str]) -> Section:
    """The part of the page.

    Args:
        rows: of the grids of this part.
        baseline: the small-batch run.
        sets: test sets, in order.
    """
    shown = [baseline, *(row for row in rows if row is not baseline)]
    found = [*_against_ring(rows), *_apart(rows)]
    headings = ["strategy", "learners", "batch", "held-out loss", f"WER {' / '.join(sets)} %",
                "WER in E %", "distance from mean", "rounds to 0.001, bound"]  # fmt: skip
    return Section(
        title="Learners",
        claim=(
            "On a fixed ring accuracy falls with the number of learners; a ring of fresh random "
            "neighbours each round (RAND) and delay-by-one averages (D1D) hold it (E, Table 2); so "
            "do super-learners, whose ring is short (H)."
        ),
        found=found,
        tables=[Table(headings=headings, rows=[_line(row, baseline, sets) for row in shown])],
        pictures=_pictures(rows),
        notes=[
            "Distance from mean: root mean square over the learners, of their weights from the "
            "mean of all, over its norm, when all stand still after the last epoch but one. Bounds "
            "are of the schedule (E): the ring's second eigenvalue to the power of the rounds, "
            "sqrt(L-1) / sqrt(3)^rounds for the random ring (Eq. 12)."
        ],
    )


def _line(row: Row, baseline: Row, sets: Sequence[str]) -> list[Value]:
    said = claims.TABLE_2.get((row.params["run.strategy"], row.learners), "")
    return [
        name(row.strategy),
        name(row.learners),
        name(row.batch),
        row.value(lambda run: run.loss, "%.3f"),
        row.word_errors(sets),
        paper(claims.BASELINE if row is baseline else said),
        row.value(apart, "%.4f"),
        _bound(row),
    ]


def apart(run: Trained) -> float:
    """Distance of the learners from their mean at the last pause before the end; NaN without.

    After the last epoch some strategies have averaged once more.
    """
    curve = run.curves.get("distance_from_mean", [])
    before = curve[:-1] or curve
    return before[-1][1] if before else math.nan


def nodes(row: Row) -> int:
    """(Super-)learners that mix with each other."""
    return row.learners // int(row.params["run.super_learner"])


def _bound(row: Row) -> Value:
    if row.learners < 3 or nodes(row) < 3:
        return Value(text=NOTHING)
    schedule = schedule_of(row)
    rounds = bounds.paper_rounds(schedule, TARGET) if schedule else None
    return Value(
        text=NOTHING if rounds is None else str(rounds), kind="modelled" if rounds else None
    )


def schedule_of(row: Row) -> MixingSchedule | None:
    """Whom its nodes mix with, where rounds say so."""
    kind = row.params["run.schedule"]
    known = kind in ("ring", "random-ring", "complete") and row.params["run.strategy"] != "ssgd"
    return create(kind, learners=nodes(row), seed=1) if known else None


def _against_ring(rows: Sequence[Row]) -> list[str]:
    """For each number of learners, others beside the fixed ring."""
    said = []
    rings = {row.learners: row for row in rows if row.strategy == "adpsgd"}
    for row in rows:
        ring = rings.get(row.learners)
        if ring is None or row is ring or row.strategy in ("single", "ssgd"):
            continue
        if not math.isfinite(row.loss) or not math.isfinite(ring.loss):
            said.append(
                f"At {row.learners} learners {row.strategy} "
                f"{'ends' if math.isfinite(row.loss) else 'diverges'}, the fixed ring "
                f"{'ends' if math.isfinite(ring.loss) else 'diverges'}."
            )
            continue
        p = p_over_seeds(row.losses, ring.losses)
        change = 100 * (row.loss / ring.loss - 1)
        sure = "no seeds to tell" if p is None else f"p {p:.2g} over {len(row.runs)} seeds"
        verdict = (
            "no difference that seeds can tell"
            if p is None or p >= 0.05
            else ("better than the fixed ring" if change < 0 else "worse than the fixed ring")
        )
        said.append(
            f"At {row.learners} learners {row.strategy}'s held-out loss is {change:+.1f} % from "
            f"the fixed ring's ({row.loss:.3f} against {ring.loss:.3f}, {sure}): {verdict}."
        )
    return said


def _apart(rows: Sequence[Row]) -> list[str]:
    """Distances of ring and random ring beside what their schedules let one expect."""
    by_strategy = {(row.strategy, row.learners): row for row in rows}
    said = []
    for (strategy, learners), row in by_strategy.items():
        other = by_strategy.get(("rand", learners))
        if strategy != "adpsgd" or other is None or learners < 3:
            continue
        found = [sum(map(apart, each.runs)) / len(each.runs) for each in (row, other)]
        schedules = [schedule_of(each) for each in (row, other)]
        if not all(map(math.isfinite, found)) or not found[1] or None in schedules:
            continue
        ring, random = (bounds.pushed_apart(each) for each in schedules if each is not None)
        said.append(
            f"At {learners} learners those of the fixed ring are {found[0] / found[1]:.2f} times "
            "as far from their mean as those of RAND; independent steps of equal size and the two "
            f"schedules' matrices would give {ring / random:.2f}."
        )
    return said


def _pictures(rows: Sequence[Row]) -> list[Picture]:
    grouped = groupby(sorted(rows, key=lambda row: row.learners), lambda row: row.learners)
    sizes = {size: list(each) for size, each in grouped}
    alone = (
        sizes.pop(1, []) if len(sizes) > 1 else []
    )  # beside the others: what they are to come near to
    panels = [
        (
            f"{size} learners",
            [(row.strategy, row.curve("heldout_loss")) for row in (*each, *alone)],
        )
        for size, each in sizes.items()
    ]
    distances = [
        (f"{size} learners", [(row.strategy, row.curve("distance_from_mean")) for row in each])
        for size, each in sizes.items()
        if any(row.curve("distance_from_mean") for row in each)
    ]
    all_ids = ids(rows)
    made = [
        Picture(
            name="learners-loss",
            figure=pictures.curves(panels, "held-out loss, nats a frame", diverging=True),
            caption="Held-out loss against epochs, by number of learners (mean over seeds). What "
            "leaves the picture diverges.",
            runs=all_ids,
        )
    ]
    if distances:
        made.append(
            Picture(
                name="learners-distance",
                figure=pictures.curves(distances, "distance from mean", log=True),
                caption="How far learners are from their mean, over its norm, after each epoch.",
                runs=all_ids,
            )
        )
    consensus = [schedules for size in sizes if size >= 4 and (schedules := _consensus(size))]
    if consensus:
        made.append(
            Picture(
                name="learners-consensus",
                figure=pictures.curves(
                    consensus, "||T1 ... Tk - Tu||", below="round k", log=True, dashed="bound"
                ),
                caption="Consensus after k rounds and E's bounds, from the schedules' matrices "
                "alone (modelled: no run enters).",
            )
        )
    return made


def _consensus(size: int) -> tuple[str, list[tuple[str, list[tuple[float, float]]]]]:
    rounds = 30
    lines: list[tuple[str, list[tuple[float, float]]]] = []
    for kind, bound in (("ring", bounds.ring_bound), ("random-ring", bounds.random_ring_bound)):
        curve = bounds.consensus_curve(
            create(kind, learners=size, seed=1), rounds=rounds, samples=3
        )
        lines.append((kind, [(float(k), float(value)) for k, value in enumerate(curve)]))
        limits = [(float(k), bound(learners=size, rounds=k)) for k in range(rounds + 1)]
        lines.append((f"{kind}, bound", limits))
    return f"{size} learners", lines
