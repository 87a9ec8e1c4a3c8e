"""Slow learners, slow links and lost exchanges, put into a run on purpose."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import numpy as np
from typing_extensions import override

from hadpsgd.decentralized.core.coordination import living
from hadpsgd.decentralized.network.speeds import ComputeTimes, LinkTimes
from hadpsgd.decentralized.topology.mixing import MixingSchedule, Takes
from hadpsgd.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Injection:
    """What is put into a run."""

    compute: ComputeTimes = field(default_factory=lambda: ComputeTimes(seconds=1.0))
    """Times of gradients, in units of what they need without injection."""
    links: LinkTimes = field(default_factory=LinkTimes)
    """Times of messages; the slower end of a link counts."""
    drop: float = 0.0
    """Share of exchanges between two partners that do not take place."""
    seed: int = 0

    def pause(self, *, learner: int, step: int, seconds: float) -> float:
        """Seconds by which gradient number `step`, which took `seconds`, is to take longer."""
        return max(0.0, seconds * (self.compute.at(learner=learner, step=step) - 1.0))

    @property
    def slows_links(self) -> bool:
        """Whether any message is made slower."""
        return self.links != LinkTimes()

    def delay(self, *, learner: int, partner: int, size: int) -> float:
        """Seconds that a message of `size` bytes between two learners needs at least."""
        return self.links.latency + max(
            self.links.seconds(learner=i, size=size) for i in (learner, partner)
        )

    def on(self, schedule: MixingSchedule) -> MixingSchedule:
        """The schedule with exchanges left out."""
        return Dropping(schedule, share=self.drop, seed=self.seed) if self.drop else schedule


class Dropping(MixingSchedule):
    """A schedule some of whose exchanges do not take place; both ends know, and keep their share.

    Which ones depends on the seed, the round and the two learners alone.
    """

    def __init__(self, base: MixingSchedule, *, share: float, seed: int) -> None:
        if not base.symmetric:
            raise UserError(
                f"schedule '{base.name}' is directed: a lost message would shift the mean",
                fix="Drop exchanges of a symmetric schedule",
            )
        super().__init__(learners=base.learners, seed=seed)
        self.base = base
        self.alive = living(base)
        self.share = share
        self.name, self.summary, self.free = base.name, base.summary, base.free

    @property
    @override
    def period(self) -> int | None:
        """Never repeats."""
        return None

    @override
    def over(self, alive: Collection[int]) -> MixingSchedule:
        """Among fewer learners, with the same share of losses."""
        return Dropping(self.base.over(alive), share=self.share, seed=self.seed)

    @override
    def exchanges(self, k: int) -> Iterator[tuple[int, Takes]]:
        """Those that take place."""
        for i, takes in enumerate(self.base.round(k).takes):
            kept = {j: w for j, w in takes.items() if j == i or not self._lost(k, i, j)}
            yield i, kept | {i: 1.0 - sum(w for j, w in kept.items() if j != i)}

    def _lost(self, k: int, i: int, j: int) -> bool:
        counter = [0, k, min(i, j), max(i, j)]
        draw = np.random.Philox(key=self.seed, counter=counter).random_raw()
        return float(draw) < self.share * 2.0**64
