"""How long gradients and transfers take: learners of unequal speed, links of unequal speed.

The same description drives the virtual clock (there is nothing else that takes time) and the
injectors that slow a real run down. Draws are counter-based: the time of step k of learner i
depends on the seed, i and k alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from hadpsgd.errors import UserError

Spread = Literal["none", "uniform", "exponential", "lognormal"]
SPREADS: tuple[Spread, ...] = ("none", "uniform", "exponential", "lognormal")


@dataclass(frozen=True)
class ComputeTimes:
    """Seconds that a learner needs for a gradient."""

    seconds: float
    """Mean time of a learner of factor 1."""
    factors: Mapping[int, float] = field(default_factory=dict)
    """Learner -> how many times slower it is; 1 where none is given."""
    spread: Spread = "none"
    """Distribution around the mean, step by step."""
    deviation: float = 0.0
    """Standard deviation over mean, for `uniform` (at most 0.57) and `lognormal`."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.seconds > 0 or any(not factor > 0 for factor in self.factors.values()):
            raise UserError("compute times and factors are above 0")
        if self.spread not in SPREADS:
            raise UserError(f"no distribution '{self.spread}'", fix=f"There are {SPREADS}")
        if self.deviation < 0 or (self.spread == "uniform" and self.deviation > 1 / math.sqrt(3)):
            raise UserError(
                f"a deviation of {self.deviation:g} would make {self.spread} times negative"
            )

    def at(self, learner: int, step: int) -> float:
        """Seconds of gradient number `step` of `learner`."""
        return self.seconds * self.factors.get(learner, 1.0) * self._noise(learner, step)

    def _noise(self, learner: int, step: int) -> float:
        if self.spread == "none":
            return 1.0
        draw = np.random.Generator(np.random.Philox(key=self.seed, counter=[0, step, learner, 1]))
        if self.spread == "exponential":
            return draw.exponential()
        if self.spread == "uniform":
            width = math.sqrt(3) * self.deviation
            return draw.uniform(1 - width, 1 + width)
        sigma = math.sqrt(math.log1p(self.deviation**2))
        return draw.lognormal(-(sigma**2) / 2, sigma)


@dataclass(frozen=True)
class LinkTimes:
    """Seconds that a message needs from one learner to another."""

    latency: float = 0.0
    """Seconds before the first byte arrives."""
    bandwidth: float = math.inf
    """Bytes a second of a learner's link, out and in alike."""
    factors: Mapping[int, float] = field(default_factory=dict)
    """Learner -> how many times slower its link is; 1 where none is given."""

    def __post_init__(self) -> None:
        if not self.latency >= 0 or not self.bandwidth > 0:
            raise UserError("a link's latency is 0 or more, its bandwidth above 0")
        if any(not factor > 0 for factor in self.factors.values()):
            raise UserError("factors of links are above 0")

    def seconds(self, source: int, target: int, size: int) -> float:
        """Time on the wire of `size` bytes: the slower of the two links decides."""
        return size / self.bandwidth * self._slower(source, target)

    def delay(self, source: int, target: int) -> float:
        """Latency from `source` to `target`."""
        return self.latency * self._slower(source, target)

    def _slower(self, source: int, target: int) -> float:
        return max(self.factors.get(source, 1.0), self.factors.get(target, 1.0))
