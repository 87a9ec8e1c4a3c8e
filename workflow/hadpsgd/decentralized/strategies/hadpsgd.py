"""H-ADPSGD (arXiv 1907.05701)."""

from __future__ import annotations

from dataclasses import dataclass

from hadpsgd.decentralized.strategies.adpsgd import Adpsgd


@dataclass(frozen=True, kw_only=True)
class Hadpsgd(Adpsgd):
    """Gradients averaged inside super-learners; among them AD-PSGD, or `Choice.among`."""

    name = "hadpsgd"
    summary = "super-learners of shared gradients, adpsgd among them"
    of_super_learners = True
    among_super_learners = False
