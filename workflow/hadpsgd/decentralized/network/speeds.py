"""How long gradients and transfers take: learners of unequal speed, links of unequal speed.

The same description drives the virtual clock (there is nothing else that takes time) and the
injectors that slow a real run down. Draws are counter-based: the time of step k of learner i
depends on the seed, i and k alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from hadpsgd.decentralized.network.queueing import QUEUE_SECONDS
from hadpsgd.errors import UserError

Spread = Literal["none", "uniform", "exponential", "lognormal"]
SPREADS: tuple[Spread, ...] = ("none", "uniform", "exponential", "lognormal")


@dataclass(frozen=True, kw_only=True)
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

    def at(self, *, learner: int, step: int) -> float:
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


@dataclass(frozen=True, kw_only=True)
class LinkTimes:
    """Seconds that messages need; each learner has one link to all others, as a network card."""

    latency: float = 0.0
    """Seconds from the last byte sent to its arrival."""
    bandwidth: float = math.inf
    """Bytes a second of a learner's link, out and in at the same time."""
    factors: Mapping[int, float] = field(default_factory=dict)
    """Learner -> how many times slower its link is; 1 where none is given."""
    queue: float = QUEUE_SECONDS
    """Seconds, at most, for which a link carries what was handed over before a short message."""

    def __post_init__(self) -> None:
        if not self.latency >= 0 or not self.bandwidth > 0:
            raise UserError("a link's latency is 0 or more, its bandwidth above 0")
        if any(not factor > 0 for factor in self.factors.values()):
            raise UserError("factors of links are above 0")

    def seconds(self, *, learner: int, size: float) -> float:
        """Time for which `size` bytes occupy the link of `learner`, in one direction."""
        return size / self.bandwidth * self.factors.get(learner, 1.0)

    def allreduce(self, learners: Iterable[int], size: float) -> float:
        """A ring allreduce of `size` bytes: 2(N-1) messages of size/N, the slowest link each."""
        members = list(learners)
        steps = 2 * (len(members) - 1)
        slowest = max(self.seconds(learner=i, size=size / len(members)) for i in members)
        return steps * (self.latency + slowest)


class Links:
    """Links in use: each carries one message at a time out and one in, in the order of asking."""

    def __init__(self, times: LinkTimes) -> None:
        self.times = times
        self.bytes_sent: defaultdict[int, float] = defaultdict(float)
        self._out_free: defaultdict[int, float] = defaultdict(float)
        self._in_free: defaultdict[int, float] = defaultdict(float)
        self._in_full: defaultdict[int, float] = defaultdict(float)

    def arrival(self, *, now: float, source: int, target: int, size: float) -> float:
        """Moment at which `size` bytes, handed over `now`, have arrived.

        The receiver takes in while the sender sends, unless it is busy with another message.
        """
        begin = max(now, self._out_free[source])
        sent = begin + self.times.seconds(learner=source, size=size)
        received = max(begin, self._in_free[target]) + self.times.seconds(learner=target, size=size)
        self._in_full[target] = received
        self._out_free[source] = sent
        self._in_free[target] = max(sent, received)
        self.bytes_sent[source] += size
        return self._in_free[target] + self.times.latency

    def told(self, *, now: float, source: int, target: int) -> float:
        """Moment at which a message of no size, handed over `now`, has arrived.

        It goes out, and comes in, behind what of weights lies there already.
        """
        queue = self.times.queue
        sent = now + min(max(self._out_free[source] - now, 0.0), queue)
        return sent + min(max(self._in_full[target] - sent, 0.0), queue) + self.times.latency
