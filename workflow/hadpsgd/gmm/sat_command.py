"""`hadpsgd sat`: speaker-adaptive training with FMLLR, on the alignments of `lda-mllt`."""

from __future__ import annotations

from hadpsgd.gmm.stage_commands import configure
from hadpsgd.gmm.stage_commands import run_sat as run

__all__ = ["configure", "run"]
