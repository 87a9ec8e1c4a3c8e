"""The noise that differences of weights put into gradients, beside the loss's curvature."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from hadpsgd.paper import pictures
from hadpsgd.paper.blocks import NOTHING, Picture, Table, Value, name
from hadpsgd.paper.cells import LANDSCAPE, Curve, Row, Trained, ids, of_seeds
from hadpsgd.scoring.seeds import mean_over_seeds

NOISE, MINIBATCH, PER_DISTANCE, RATE, SHARPNESS = LANDSCAPE
FEWEST = 3
"""Epochs of a run of which a rank correlation is taken."""
NOTES = (
    "g_a is the mean of the learners' gradients, each at its own weights and on its own minibatch; "
    "g_s is of the same minibatches at the mean of all weights, g there on more examples. Noise of "
    "weight differences: |g_a - g_s| / |g_s|; of minibatches: |g_s - g| / |g_s|. Noise over "
    "distance: |g_a - g_s| over the learners' distance from their mean. Effective rate: "
    "g_a . g / |g|^2, over the learning rate, momentum and clipping aside. Sharpness: largest "
    "eigenvalue of the Hessian at the mean weights. All on training examples that stay the same, "
    "at the first, the middle and the last of the epochs that all seeds have; a run that diverges "
    "has fewer.",
    "Correlations are Spearman's, over the epochs of each run, then the mean over the runs of a "
    "strategy (batches and seeds). The learning rate follows the epochs, too: what goes together "
    "need not cause each other.",
)


def tables(rows: Sequence[Row]) -> list[Table]:
    """The landscape by epochs, and how it goes together."""
    headings = ["strategy", "learners", "batch", "rate", "epoch", "noise of weight differences",
                "over that of minibatches", "over distance", "effective rate",
                "sharpness"]  # fmt: skip
    lines = [line for row in rows for line in _lines(row)]
    found = [_together(strategy, own) for strategy, own in _by_strategy(rows).items()]
    together = ["rank correlation with sharpness", "runs", *(pair.of for pair in PAIRS)]
    return [
        Table(headings=headings, rows=lines),
        Table(headings=together, rows=found),
    ]


def _lines(row: Row) -> Iterator[list[Value]]:
    epochs = [x for x, _ in row.curve(SHARPNESS)]
    for epoch in dict.fromkeys(epochs[i] for i in (0, len(epochs) // 2, -1) if epochs):
        yield [
            name(row.strategy),
            name(row.learners),
            name(row.batch),
            name(f"{row.rate:.4g}"),
            name(f"{epoch:g}"),
            *(_value(row, *curves, epoch) for curves in _COLUMNS),
        ]


_COLUMNS = ((NOISE, ""), (NOISE, MINIBATCH), (PER_DISTANCE, ""), (RATE, ""), (SHARPNESS, ""))
"""Curves, and what each is divided by."""


def _value(row: Row, curve: str, unit: str, epoch: float) -> Value:
    def at(run: Trained, name: str) -> float:
        return dict(run.curves.get(name, ())).get(epoch, math.nan)

    def of(run: Trained) -> float:
        return at(run, curve) / (at(run, unit) or math.nan) if unit else at(run, curve)

    return of_seeds([of(run) for run in row.runs], "%.3g", kind=row.kind, runs=row.ids)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A curve, and what the claim says of it where the loss is steep."""

    curve: str
    of: str
    rises: bool


PAIRS = (
    Pair(curve=NOISE, of="noise of weight differences", rises=True),
    Pair(curve=PER_DISTANCE, of="noise over distance", rises=True),
    Pair(curve=RATE, of="effective rate", rises=False),
)


def correlations(rows: Sequence[Row], curve: str) -> list[float]:
    """Of each run that has enough epochs: Spearman's, of a curve with the sharpness."""
    from scipy import stats  # half a second

    found = []
    for run in chain(*(row.runs for row in rows)):
        pairs = points(run, curve)
        if len(pairs) >= FEWEST and all(len(set(each)) > 1 for each in zip(*pairs, strict=True)):
            found.append(float(stats.spearmanr(*zip(*pairs, strict=True)).statistic))
    return found


def points(run: Trained, curve: str) -> Curve:
    """Sharpness and the curve's value, epoch by epoch."""
    steep = dict(run.curves.get(SHARPNESS, ()))
    return [(steep[epoch], y) for epoch, y in run.curves.get(curve, ()) if epoch in steep]


def _by_strategy(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.strategy, []).append(row)
    return found


def _together(strategy: str, rows: Sequence[Row]) -> list[Value]:
    line = [name(strategy), name(sum(len(row.runs) for row in rows))]
    for pair in PAIRS:
        found = correlations(rows, pair.curve)
        kind, own = rows[0].kind, ids(rows)
        line.append(of_seeds(found, "%.2f", kind=kind, runs=own) if found else Value(text=NOTHING))
    return line


def found(rows: Sequence[Row]) -> list[str]:
    """What the correlations say of the claim, strategy by strategy."""
    said = []
    for strategy, own in _by_strategy(rows).items():
        for pair in PAIRS:
            if values := correlations(own, pair.curve):
                said.append(_sentence(strategy, pair, values, equal=_equal(own)))
    return said


def _equal(rows: Sequence[Row]) -> bool:
    """Whether the learners' weights never differ."""
    return not any(y for row in rows for run in row.runs for _, y in run.curves.get(NOISE, ()))


def _sentence(strategy: str, pair: Pair, values: Sequence[float], *, equal: bool) -> str:
    interval = mean_over_seeds(values)
    told = f"Spearman's rho with the sharpness {interval.value:.2f}"
    if len(values) < 2:
        return f"With {strategy}, {pair.of}: {told} in one run; whether it is chance is not known."
    told += f" over {len(values)} runs, {interval.low:.2f} .. {interval.high:.2f}"
    rises, falls = interval.low > 0, interval.high < 0
    if not rises and not falls:
        verdict = "whether it grows or shrinks with curvature cannot be told here"
    else:
        grows = "grows" if rises else "shrinks"
        agrees = "as the claim says" if rises == pair.rises else "against the claim"
        agrees = "though no weights differ" if equal else agrees
        verdict = f"it {grows} with curvature here, {agrees}"
    return f"With {strategy}, {pair.of}: {told}; {verdict}."


def drawn(rows: Sequence[Row]) -> list[Picture]:
    """Noise against sharpness, and both over epochs."""
    called = {_label(row): row for row in rows}
    if not any(points(run, SHARPNESS) for row in rows for run in row.runs):
        return []
    clouds: list[pictures.Panel] = [
        (title, [(label, [p for run in row.runs for p in points(run, curve)])
                 for label, row in called.items()])
        for title, curve in (("noise of weight differences", NOISE),
                             ("noise over distance", PER_DISTANCE))
    ]  # fmt: skip
    over: list[pictures.Panel] = [
        (title, [(label, row.curve(curve)) for label, row in called.items()])
        for title, curve in (("effective rate, times the rate", RATE), ("sharpness", SHARPNESS))
    ]
    return [
        Picture(
            name="why-noise",
            figure=pictures.cloud(clouds, below="sharpness"),
            caption="Noise of weight differences against sharpness: a point for each epoch of each "
            "run. Equal weights (SSGD) have none, and no point.",
            runs=ids(rows),
        ),
        Picture(
            name="why-epochs",
            figure=pictures.curves(over, "", log=(False, True)),
            caption="Effective rate and sharpness after each epoch that all seeds have (mean over "
            "seeds).",
            runs=ids(rows),
        ),
    ]


def _label(row: Row) -> str:
    return f"{row.strategy}, batch {row.batch}"
