"""Why: where training converges over rate and batch, and the noise that may explain it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from hadpsgd.paper import noise
from hadpsgd.paper.batches import over_rate_and_batch
from hadpsgd.paper.blocks import Section
from hadpsgd.paper.cells import Row


def section(rows: Sequence[Row], probed: Sequence[Row]) -> Section:
    """The part of the page.

    Args:
        rows: of the part Batch.
        probed: of this part's own grids.
    """
    return Section(
        title="Why",
        claim=(
            "Weights that differ from learner to learner put noise into the mean gradient that "
            "grows with the loss's curvature: steps are smaller where it is steep, so that rates "
            "and batches at which SSGD diverges still converge (L)."
        ),
        found=[*_found(rows), *noise.found(probed)],
        tables=noise.tables(probed) if probed else [],
        pictures=[*over_rate_and_batch(rows), *noise.drawn(probed)],
        notes=noise.NOTES if probed else (),
    )


def _found(rows: Sequence[Row]) -> list[str]:
    """The largest rate at which each strategy ends, at the largest batch that both have."""
    said = []
    grouped = groupby(sorted(rows, key=lambda row: row.batch), lambda row: row.batch)
    for batch, each in grouped:
        ended: dict[str, float] = {}
        tried: dict[str, float] = {}
        for row in each:
            tried[row.strategy] = max(row.rate, tried.get(row.strategy, 0.0))
            if math.isfinite(row.loss):
                ended[row.strategy] = max(row.rate, ended.get(row.strategy, 0.0))
        cut = {strategy: rate for strategy, rate in tried.items() if ended.get(strategy, 0) < rate}
        if cut:
            told = ", ".join(
                f"{strategy} {ended[strategy]:.3g}" if strategy in ended else f"{strategy} none"
                for strategy in tried
            )
            said.append(f"At batch {batch} the largest rate at which all seeds end is: {told}.")
    return said or ["No run diverged at any rate and batch tried."] if rows else []
