"""Post-local SGD (arXiv 1808.07217)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from hadpsgd.decentralized.strategies.periodic import Periodic

if TYPE_CHECKING:
    from hadpsgd.decentralized.strategies.mixer import Mixer
    from hadpsgd.decentralized.strategies.parts import Parts


@dataclass(frozen=True, kw_only=True)
class Local(Periodic):
    """Shared gradients at first, then local steps and averages of weights."""

    name = "local"
    summary = "local steps, all weights averaged every few"
    default_schedule = "complete"
    collective = True
    among_super_learners = True
    synchronous_steps: int = 0
    """Steps of shared gradients before them."""

    @property
    @override
    def shared_steps(self) -> float:
        """Those before the local ones."""
        return self.synchronous_steps

    @override
    def mixer(self, parts: Parts) -> Mixer:
        """The mean of all, between gradients."""
        return parts.in_step(parts.average())
