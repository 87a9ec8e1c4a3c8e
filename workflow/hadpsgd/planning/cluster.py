"""What a cluster is, as far as the time of training depends on it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.special import log_ndtr

from hadpsgd.errors import UserError

_GRID = np.linspace(0, 12, 12_001)
LATENCY_BETWEEN, LATENCY_INSIDE = 2e-5, 5e-6
"""Seconds that a message takes at least, between nodes and inside one."""
LARGEST = 1e18
"""Beyond any bandwidth, number of learners, or seconds."""


@dataclass(frozen=True, kw_only=True)
class Compute:
    """Seconds of a learner's gradient: seconds = each * (batch + half_batch).

    Hockney's two parameters of a pipelined processor: at a batch of `half_batch` a learner has half
    of the speed that it reaches with endless batches.
    """

    each: float
    """Seconds of a subsequence in an endless batch."""
    half_batch: float = 0.0
    """Subsequences that the fixed part of a step is worth (kernels begun, weights read)."""
    noise: float = 0.0
    """Standard deviation over mean, from step to step."""

    def __post_init__(self) -> None:
        check("seconds a subsequence", self.each)
        check("half-speed batch", self.half_batch, zero=True)
        check("noise", self.noise, zero=True)

    def seconds(self, batch: float) -> float:
        """Mean seconds of a gradient of `batch` subsequences."""
        return self.each * (batch + self.half_batch)

    def taking(self, *, seconds: float, batch: float) -> Compute:
        """The same half-speed batch and noise, where a gradient of `batch` takes `seconds`."""
        check("seconds of compute", seconds)
        check("batch of compute", batch)
        return replace(self, each=seconds / (batch + self.half_batch))

    def wait(self, batch: float, *, learners: int) -> float:
        """Seconds by which the last of so many learners is expected after the mean."""
        return self.noise * self.seconds(batch) * expected_maximum(learners)


@dataclass(frozen=True, kw_only=True)
class Link:
    """What a link carries in each direction: what programs reach, not what is printed on it."""

    bandwidth: float
    """Bytes a second."""
    latency: float = 0.0
    """Seconds of a message beside those of its bytes."""

    def __post_init__(self) -> None:
        check("bandwidth", self.bandwidth)
        check("latency", self.latency, zero=True)


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Nodes of GPUs; a learner has one GPU to itself."""

    nodes: int
    gpus: int
    """Of a node."""
    compute: Compute
    inside: Link
    """Of each GPU, to the others of its node."""
    between: Link
    """Of each node, to the other nodes: its learners share it."""
    contention: float = 0.0
    """Share of a gradient's speed that is lost while messages travel beside it; below 1."""
    slowest: float = 1.0
    """How many times slower one learner always is."""

    def __post_init__(self) -> None:
        check("nodes", self.nodes)
        check("GPUs of a node", self.gpus)
        check("contention", self.contention, zero=True)
        if self.contention >= 1:
            raise UserError(f"contention is below 1, not {self.contention:g}")
        check("slowest learner's factor", self.slowest)
        if self.slowest < 1:
            raise UserError(f"the slowest learner's factor is 1 or more, not {self.slowest:g}")

    def spread(self, learners: int) -> tuple[int, int]:
        """(nodes taken, learners on a full one) for so many learners, node after node."""
        return -(-learners // self.gpus), min(learners, self.gpus)


MOST_BANDWIDTH = 1e15
"""Bytes a second of a link: no machine has more."""
LEAST = 1e-12
"""Below any seconds, bandwidth or share, where 0 is not meant: hours would be infinite."""


def check(what: str, value: float, *, zero: bool = False) -> None:
    """Refuse what is no number above 0 (with `zero`: nor 0), or is beyond all machines.

    Raises:
        UserError: so.
    """
    if value != value or value < 0 or (value == 0 and not zero):
        above = "a number, 0 or more" if zero else "a number above 0"
        raise UserError(f"{what} is {above}, not {value}")
    if value < LEAST and not zero:
        raise UserError(f"{what} is below {LEAST:g}: no machine has that")
    if value > LARGEST:
        raise UserError(f"{what} is above {LARGEST:g}: no machine has that")


@lru_cache(maxsize=4096)
def expected_maximum(count: int) -> float:
    """Expected largest of `count` independent standard normal numbers.

    The integral of 1 - F(x) - F(-x) from 0 on, F the distribution of the largest.
    """
    if count == 1:
        return 0.0
    both = np.exp(count * log_ndtr(_GRID)) + np.exp(count * log_ndtr(-_GRID))
    return float(np.trapezoid(1 - both, _GRID))
