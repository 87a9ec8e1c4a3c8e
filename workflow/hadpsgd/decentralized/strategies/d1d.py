"""D1D-PSGD, delay by one (arXiv 2002.01119)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from hadpsgd.decentralized.strategies.dpsgd import Dpsgd

if TYPE_CHECKING:
    from hadpsgd.decentralized.strategies.mixer import Mixer
    from hadpsgd.decentralized.strategies.parts import Parts


class D1d(Dpsgd):
    """Allreduce of weights beside the gradient, which is taken at the last average.

    W[k+1] = W[k] Tu - a g(W[k-1] Tu). Eq. 14 of arXiv 2002.01119 writes g(W[k-1]), its text "the
    model from the previous round of allreduce"; the text is followed here.
    """

    name = "d1d"
    summary = "weight allreduce beside the gradient, which is one round late"
    default_schedule = "complete"
    collective = True
    late = True

    @override
    def mixer(self, parts: Parts) -> Mixer:
        """The mean of all, between gradients."""
        return parts.in_step(parts.average())
