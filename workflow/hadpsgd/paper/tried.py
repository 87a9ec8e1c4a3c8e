"""Tried: other recipes, in which a large batch might tell the strategies apart."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from hadpsgd.paper import batches
from hadpsgd.paper.blocks import NOTHING, Section, Table, Value, name
from hadpsgd.paper.cells import Row

OWN_COLUMNS = ("training.batch", "training.seed")
"""Settings that are no recipe: they have columns of their own, or none."""


def section(rows: Sequence[Row], ruled: batches.Chosen, baseline: Row) -> Section:
    """The part of the page.

    Args:
        rows: of its grids.
        ruled: the part Batch's runs with the common recipe, which are put beside.
        baseline: the small-batch run, whose recipe is the common one.
    """
    sizes = {(row.batch, row.learners) for row in rows}
    usual = [row for own in ruled.values() for row in own.values()]
    beside = [row for row in usual if (row.batch, row.learners) in sizes]
    grouped = _grouped([*beside, *rows], baseline)
    order = list(dict.fromkeys(row.strategy for own in grouped.values() for row in own))
    lines = []
    for (recipe, batch, learners), own in grouped.items():
        of = {row.strategy: row for row in own}
        cells = [_loss(of.get(strategy)) for strategy in order]
        lines.append([name(recipe), name(learners), name(batch), *cells])
    return Section(
        title="Tried",
        claim=(
            "The papers do not say under which recipe they compare (momentum, clipping and more "
            "are not known); a claim that does not show under one may show under another."
        ),
        found=_found(grouped),
        tables=[Table(headings=["recipe", "learners", "batch", *order], rows=lines)],
        notes=["Held-out losses. Recipes are told by what differs from the baseline's."],
    )


def recipe(row: Row, baseline: Row) -> str:
    """What of its training and its model differs from the baseline's."""
    told = [
        f"{key.partition('.')[2].replace('_', ' ').replace('.', ' ')} {value}"
        for key, value in sorted(row.params.items())
        if key.startswith(("training.", "model."))
        and key not in OWN_COLUMNS
        and value != baseline.params.get(key)
    ]
    return ", ".join(told) or "the common one"


def _grouped(rows: Sequence[Row], baseline: Row) -> dict[tuple[str, int, int], list[Row]]:
    """(recipe, batch, learners) -> rows of it, the common recipe first, then as given."""

    def key(row: Row) -> tuple[str, int, int]:
        return recipe(row, baseline), row.batch, row.learners

    order = list(dict.fromkeys(key(row) for row in rows))
    ordered = sorted(rows, key=lambda row: order.index(key(row)))
    return {each: list(own) for each, own in groupby(ordered, key)}


def _loss(row: Row | None) -> Value:
    return row.value(lambda run: run.loss, "%.3f") if row else Value(text=NOTHING)


def _found(grouped: dict[tuple[str, int, int], list[Row]]) -> list[str]:
    """In how many of them each other strategy ends lower than SSGD."""
    tried: dict[str, list[str]] = {}
    lower: dict[str, list[str]] = {}
    few = False
    for (told, batch, learners), own in grouped.items():
        of = {row.strategy: row for row in own}
        ssgd = of.pop("ssgd", None)
        for strategy, row in of.items() if ssgd else ():
            tried.setdefault(strategy, []).append(told)
            few |= len(row.runs) < 2
            if ssgd and row.loss < ssgd.loss:
                lower.setdefault(strategy, []).append(f"{told}, batch {batch}, {learners} learners")
    said = [
        f"{strategy} ends with a lower mean loss than SSGD in {len(lower.get(strategy, []))} of "
        f"{len(all_)} recipes" + (f" ({'; '.join(lower[strategy])})." if strategy in lower else ".")
        for strategy, all_ in tried.items()
    ]
    return [*said, "Some of these are of one seed: chance is not excluded."] if few else said
