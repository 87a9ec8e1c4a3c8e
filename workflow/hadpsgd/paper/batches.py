"""Batch: the largest total batch at which a strategy still ends near the small-batch baseline."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby

from hadpsgd.paper import claims, pictures
from hadpsgd.paper.blocks import NOTHING, Kind, Picture, Section, Table, Value, name, paper
from hadpsgd.paper.cells import Row, ids

Chosen = dict[str, dict[int, Row]]
"""Strategy -> total batch -> the run that stands for it."""


def section(rows: Sequence[Row], baseline: Row, sets: Sequence[str]) -> Section:
    """The part of the page.

    Args:
        rows: of the grids of this part.
        baseline: the small-batch run; its base rate is that of the papers' rule here.
        sets: test sets, in order.
    """
    ruled, tuned = by_rule(rows, baseline), best(rows)
    tables = [_table(ruled, baseline, sets), _table(tuned, baseline, sets)]
    found = [
        *_found("With the papers' rate rule", ruled, baseline),
        *_found("With the rate tuned for each", tuned, baseline),
    ]
    return Section(
        title="Batch",
        claim=(
            "ADPSGD converges up to a total batch of 12,288 with a loss near the baseline's, SSGD "
            "up to 4,096 (blog on S): three times as far (H)."
        ),
        found=found,
        tables=[_largest(ruled, tuned, baseline), *tables],
        pictures=_pictures(rows, ruled, tuned, baseline),
        notes=[
            f"Converged: held-out loss, mean over the seeds, at most {100 * claims.NEAR:g} % above "
            f"the baseline's ({baseline.loss:.3f} at batch {baseline.batch}). Every run sees the "
            "data as often as the baseline. The first table shows the largest such batches, the "
            "second runs with the papers' rule (the rate grows with the batch, after warm-up), the "
            "third the rate of the grid with the lowest held-out loss for each batch; it is chosen "
            "on the same held-out data that it is judged by."
        ],
    )


def by_rule(rows: Sequence[Row], baseline: Row) -> Chosen:
    """The runs with the papers' rate rule."""
    ruled = [row for row in rows if row.base_rate == baseline.base_rate]
    return _by_strategy(ruled, lambda row: row.rate)


def best(rows: Sequence[Row]) -> Chosen:
    """The run with the lowest held-out loss of each batch; any of those that diverge."""
    return _by_strategy(rows, lambda row: row.loss)


def _by_strategy(rows: Sequence[Row], key: Callable[[Row], float]) -> Chosen:
    found: Chosen = {}
    for row in sorted(rows, key=lambda row: (row.batch, key(row))):
        found.setdefault(row.strategy, {}).setdefault(row.batch, row)
    order = list(dict.fromkeys(row.strategy for row in rows))
    return {strategy: found[strategy] for strategy in order if strategy in found}


def converges(row: Row, baseline: Row) -> bool:
    """Whether its loss is near the baseline's."""
    return row.loss <= (1 + claims.NEAR) * baseline.loss


def largest(chosen: dict[int, Row], baseline: Row) -> tuple[int, bool]:
    """The largest batch that converges, 0 if none does; and whether a larger one was tried."""
    good = max((batch for batch, row in chosen.items() if converges(row, baseline)), default=0)
    return good, any(batch > good for batch in chosen)


def _largest(ruled: Chosen, tuned: Chosen, baseline: Row) -> Table:
    lines = []
    for strategy in ruled | tuned:
        line = [name(strategy)]
        for chosen in (ruled, tuned):
            own = chosen.get(strategy, {})
            line += [_limit(own, baseline), _ratio(own, chosen.get("ssgd", {}), baseline)]
        said = claims.LARGEST_BATCH.get(strategy)
        line.append(paper(f"{said:,} (S)" if said else ""))
        line.append(paper(claims.RATIO if strategy == "adpsgd" else ""))
        lines.append(line)
    headings = ["strategy", "largest batch, rule", "of SSGD's", "largest batch, tuned", "of SSGD's",
                "largest batch, papers", "of SSGD's, papers"]  # fmt: skip
    return Table(headings=headings, rows=lines)


def _limit(chosen: dict[int, Row], baseline: Row) -> Value:
    if not chosen:
        return Value(text=NOTHING)
    good, tried = largest(chosen, baseline)
    text = f"{good}" if good else f"below {min(chosen)}"
    note = "" if tried else "the largest tried"
    return Value(text=text, kind=_kind(chosen), note=note, runs=ids(chosen.values()))


def _ratio(chosen: dict[int, Row], ssgd: dict[int, Row], baseline: Row) -> Value:
    if not chosen or not ssgd:
        return Value(text=NOTHING)
    own, theirs = largest(chosen, baseline), largest(ssgd, baseline)
    if not own[0] or not theirs[0]:
        return Value(text=NOTHING)
    note = "" if own[1] and theirs[1] else "limited by the batches tried"
    return Value(text=f"{own[0] / theirs[0]:.2g}", kind=_kind(chosen), note=note)


def _kind(chosen: dict[int, Row]) -> Kind | None:
    return next((row.kind for row in chosen.values()), None)


def _found(how: str, chosen: Chosen, baseline: Row) -> list[str]:
    """What the data say of the claim."""
    limits = {strategy: largest(own, baseline) for strategy, own in chosen.items()}
    if "ssgd" not in limits:
        return []
    said = []
    good, tried = limits.pop("ssgd")
    for strategy, (own, more) in limits.items():
        if not tried:
            said.append(
                f"{how}, SSGD still converges at the largest batch tried ({good}): whether "
                f"{strategy} goes further cannot be seen here."
            )
        elif not good or not own:
            said.append(
                f"{how}, the largest batch that converges is {good or 'none of those tried'} with "
                f"SSGD, {own or 'none of those tried'} with {strategy}: no ratio can be given."
            )
        else:
            ratio, least = own / good, "" if more else "at least "
            verdict = (
                "the claim holds here"
                if ratio >= 3
                else "the claimed 3 does not appear here"
                if more
                else "larger batches were not tried, so whether it is 3 cannot be seen here"
            )
            said.append(
                f"{how}, {strategy} converges up to batch {own}, SSGD up to {good}: {least}"
                f"{ratio:.2g} times as far; {verdict}."
            )
    return said


def _table(chosen: Chosen, baseline: Row, sets: Sequence[str]) -> Table:
    headings = ["strategy", "learners", "batch", "rate", "held-out loss", "over the baseline's",
                "converged", f"WER {' / '.join(sets)} %"]  # fmt: skip
    rows = [baseline, *(row for own in chosen.values() for row in own.values())]
    return Table(headings=headings, rows=[_line(row, baseline, sets) for row in rows])


def _line(row: Row, baseline: Row, sets: Sequence[str]) -> list[Value]:
    over = row.loss / baseline.loss - 1
    return [
        name(row.strategy),
        name(row.learners),
        name(row.batch),
        name(f"{row.rate:.4g}"),
        row.value(lambda run: run.loss, "%.3f"),
        Value(text=f"{100 * over:+.1f} %" if math.isfinite(over) else NOTHING, kind=row.kind),
        name("yes" if converges(row, baseline) else "no"),
        row.word_errors(sets),
    ]


def _pictures(rows: Sequence[Row], ruled: Chosen, tuned: Chosen, baseline: Row) -> list[Picture]:
    if not rows:
        return []
    panels: list[pictures.Panel] = []
    for title, chosen in (("papers' rule", ruled), ("tuned rate", tuned)):
        lines: list[pictures.Line] = [
            (strategy, [(batch, row.loss) for batch, row in own.items() if math.isfinite(row.loss)])
            for strategy, own in chosen.items()
        ]
        edge = (1 + claims.NEAR) * baseline.loss
        batches = [row.batch for row in rows]
        lines.append(("baseline, 5 % above", [(x, edge) for x in (min(batches), max(batches))]))
        panels.append((title, lines))
    figure = pictures.curves(panels, "held-out loss", below="total batch", log_x=True, dashed="5")
    caption = "Held-out loss against total batch; runs that diverged are left out."
    return [Picture(name="batch", figure=figure, caption=caption, runs=ids([baseline, *rows]))]


def over_rate_and_batch(rows: Sequence[Row]) -> list[Picture]:
    """Convergence over learning rate and batch, strategy by strategy (for the part Why)."""
    order = list(dict.fromkeys(row.strategy for row in rows))
    ordered = sorted(rows, key=lambda row: order.index(row.strategy))
    grouped = groupby(ordered, lambda row: row.strategy)
    panels = [
        (strategy, {(float(row.batch), row.rate): row.loss for row in own})
        for strategy, own in grouped
    ]
    if not panels:
        return []
    caption = (
        "Held-out loss over learning rate (after warm-up) and total batch. x: training diverged; "
        "empty: not tried."
    )
    return [
        Picture(
            name="rate-and-batch", figure=pictures.heat(panels), caption=caption, runs=ids(rows)
        )
    ]
