"""D-PSGD (arXiv 1705.09056)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from hadpsgd.decentralized.strategies.strategy import Counters, Strategy

if TYPE_CHECKING:
    from hadpsgd.decentralized.strategies.mixer import Mixer
    from hadpsgd.decentralized.strategies.parts import Parts


class Dpsgd(Strategy):
    """W[k+1] = W[k] T - a g(W[k]), round k exchanged while gradient k is computed."""

    name = "dpsgd"
    summary = "weights mixed with neighbours once a step, in step"
    among_super_learners = True

    @override
    def mixer(self, parts: Parts) -> Mixer:
        """With the partners of the schedule, between gradients."""
        return parts.in_step(parts.peers())

    @override
    def may_start(self, now: Counters) -> bool:
        """As soon as the gradient of the same number begins."""
        return now.started == now.steps and not now.finished

    @override
    def may_update(self, now: Counters) -> bool:
        """Once its round is mixed in."""
        return now.rounds > now.steps
