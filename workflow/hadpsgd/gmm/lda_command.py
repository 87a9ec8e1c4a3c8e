"""`hadpsgd lda-mllt`: triphones on LDA+MLLT features, on the alignments of `tri`."""

from __future__ import annotations

from hadpsgd.gmm.stage_commands import configure
from hadpsgd.gmm.stage_commands import run_lda as run

__all__ = ["configure", "run"]
