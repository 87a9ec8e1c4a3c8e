"""Synchronous SGD."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from typing_extensions import override

from hadpsgd.decentralized.strategies.strategy import Strategy

if TYPE_CHECKING:
    from hadpsgd.decentralized.strategies.mixer import Mixer
    from hadpsgd.decentralized.strategies.parts import Parts


class Ssgd(Strategy):
    """The mean gradient of all learners, every step."""

    name = "ssgd"
    summary = "gradient allreduce every step"
    mixes = False

    @property
    @override
    def shared_steps(self) -> float:
        """All."""
        return math.inf

    @override
    def mixer(self, parts: Parts) -> Mixer:
        """None: the weights are equal everywhere."""
        return parts.no_mixer()


class Single(Ssgd):
    """SGD: one learner, whose gradient is the mean of all."""

    name = "single"
    summary = "one learner"
    alone = True
