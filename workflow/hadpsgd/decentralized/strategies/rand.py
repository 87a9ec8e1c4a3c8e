"""RAND-PSGD (arXiv 2002.01119)."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from hadpsgd.decentralized.strategies.adpsgd import Adpsgd


@dataclass(frozen=True, kw_only=True)
class Rand(Adpsgd):
    """AD-PSGD on a fresh random ring each round."""

    name = "rand"
    summary = "adpsgd on a fresh random ring each round"
    default_schedule = "random-ring"
    among_super_learners = False

    @classmethod
    @override
    def misfit(cls, schedule: str, *, symmetric: bool) -> str | None:
        """Any other schedule makes it AD-PSGD."""
        if schedule != cls.default_schedule:
            return "rand is AD-PSGD on the schedule 'random-ring'; choose adpsgd"
        return super().misfit(schedule, symmetric=symmetric)
