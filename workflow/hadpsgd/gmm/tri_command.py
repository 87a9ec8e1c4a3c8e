"""`hadpsgd tri`: triphones on deltas, on the alignments of `mono`."""

from __future__ import annotations

from hadpsgd.gmm.stage_commands import configure
from hadpsgd.gmm.stage_commands import run_tri as run

__all__ = ["configure", "run"]
