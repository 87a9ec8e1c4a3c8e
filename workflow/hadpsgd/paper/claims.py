"""What the papers say, beside which our numbers stand. Hours are in `hadpsgd.planning.papers`.

H is arXiv 1907.05701, E 2002.01119, S 1904.04956, T 2110.11199, L 2112.01433.
"""

from __future__ import annotations

BASELINE = "7.5 / 13.0 (E, batch 256)"
"""WER on Switchboard / CallHome of a single learner."""
TABLE_2 = {
    ("adpsgd", 16): "7.6 / 13.2",
    ("adpsgd", 32): "7.9 / 13.6",
    ("adpsgd", 64): "8.1 / 14.0",
    ("rand", 16): "7.6 / 13.1",
    ("rand", 32): "7.7 / 13.4",
    ("rand", 64): "7.8 / 13.4",
    ("d1d", 16): "7.4 / 13.3",
    ("d1d", 32): "7.6 / 13.1",
    ("d1d", 64): "7.5 / 13.3",
    ("hadpsgd", 64): "7.6 / 13.2 (H)",
}
"""(strategy, learners) -> WER after 16 epochs at batch 8192 (E, Table 2)."""
LARGEST_BATCH = {"ssgd": 4096, "adpsgd": 12288}
"""Largest total batch that converges near the baseline's loss (IBM Research's blog on S)."""
RATIO = "3 (H)"
"""Largest batch of ADPSGD over that of SSGD."""
NEAR = 0.05
"""Relative to the baseline: what counts as converged here."""
