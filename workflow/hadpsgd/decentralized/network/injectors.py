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
    def slows_gradients(self) -> bool:
        """Whether any gradient is to take longer."""
        return bool(self.compute.factors) or self.compute.spread != "none"

    @property
    def slows_links(self) -> bool:
        """Whether any message is made slower."""
        return self.links != LinkTimes()

    def delay(self, *, learner: int, partner: int, size: int) -> float:
        """Seconds that a message of `size` bytes between two learners needs at least."""
        return self.links.latency + max(
            self.links.seconds(learner=i, size=size) for i in (learner, partner)
        )

    def on(self, schedule: MixingSchedule, *, one_way: bool = False) -> MixingSchedule:
        """The schedule with exchanges left out; `one_way`: see `Dropping`."""
        if not self.drop:
            return schedule
        return Dropping(schedule, share=self.drop, seed=self.seed, one_way=one_way)


class Dropping(MixingSchedule):
    """A schedule some of whose exchanges do not take place; both ends know, and keep their share.

    Which ones depends on the seed, the round and the two learners alone. In a directed round the
    sender keeps what it did not send, and the receiver has less than the others: what learners give
    away sums to 1, what they take does not. `one_way` says that the strategy bears it (push-sum).
    """

    def __init__(
        self, base: MixingSchedule, *, share: float, seed: int, one_way: bool = False
    ) -> None:
        if not base.symmetric and not one_way:
            raise UserError(
                f"schedule '{base.name}' is directed: a lost message would shift the mean",
                fix="Drop exchanges of a symmetric schedule",
            )
        super().__init__(learners=base.learners, seed=seed)
        self.base = base
        self.alive = living(base)
        self.share = share
        self.name, self.summary = base.name, base.summary
        self.symmetric, self.free = base.symmetric, base.free

    @property
    @override
    def period(self) -> int | None:
        """Never repeats."""
        return None

    @override
    def over(self, alive: Collection[int]) -> MixingSchedule:
        """Among fewer learners, with the same share of losses."""
        base = self.base.over(alive)
        return Dropping(base, share=self.share, seed=self.seed, one_way=not base.symmetric)

    @override
    def exchanges(self, k: int) -> Iterator[tuple[int, Takes]]:
        """Those that take place."""
        rows = self.base.round(k).takes
        kept = [
            {j: w for j, w in takes.items() if j == i or not self._lost(k, i, j)}
            for i, takes in enumerate(rows)
        ]
        for i, takes in enumerate(kept):
            if self.symmetric:
                own = 1.0 - sum(w for j, w in takes.items() if j != i)
            else:
                own = 1.0 - sum(row.get(i, 0.0) for j, row in enumerate(kept) if j != i)
            yield i, takes | {i: own}

    def _lost(self, k: int, i: int, j: int) -> bool:
        pair = (min(i, j), max(i, j)) if self.symmetric else (j, i)
        counter = [0, k, *pair]
        draw = np.random.Philox(key=self.seed, counter=counter).random_raw()
        return float(draw) < self.share * 2.0**64
