"""How far ahead a learner claims over a slow link to the store, in virtual time."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from hadpsgd.decentralized.core.ahead import MOST, Ahead, share
from hadpsgd.decentralized.core.left import Left
from hadpsgd.decentralized.core.stores import LocalStore
from hadpsgd.decentralized.core.supply import Supply
from hadpsgd.decentralized.core.work import Ledger
from hadpsgd.decentralized.simulated.clock import VirtualClock

LEARNERS, GRADIENT, TRIP = 8, 0.05, 0.029


class Far:
    """A store whose calls take their time."""

    def __init__(self, store: LocalStore, clock: VirtualClock, seconds: float) -> None:
        self._store, self._clock, self._seconds = store, clock, seconds
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> Any:
            self.calls[name] += 1
            self._clock.sleep(self._seconds / 2)
            found = getattr(self._store, name)(*args)
            self._clock.sleep(self._seconds / 2)
            return found

        return call


class Race:
    """Learners who share blocks in virtual time; what each did, and when it was all done."""

    def __init__(
        self, steps: int, *, trips: dict[int, float], factors: dict[int, float] | None = None
    ) -> None:
        self.clock, self.store = VirtualClock(), LocalStore()
        self.left = Left(total=steps * LEARNERS)
        self.factors = factors or {}
        self.did: list[list[int]] = [[] for _ in range(LEARNERS)]
        self.most = [0] * LEARNERS
        self.last = 0.0
        self.stores = [Far(self.store, self.clock, trips.get(n, 0.0003)) for n in range(LEARNERS)]
        self.ledgers = [
            Ledger(self.stores[n], self.left, learner=n, learners=LEARNERS, now=self.clock.now)
            for n in range(LEARNERS)
        ]
        for learner in range(LEARNERS):
            self.clock.spawn(self._learn, learner)
        self.clock.run()
        assert Counter(block for did in self.did for block in did) == Counter(
            range(steps * LEARNERS)
        )

    def _learn(self, learner: int) -> None:
        ledger = self.ledgers[learner]
        with Supply(ledger, lambda block: block, clock=self.clock) as supply:
            while not supply.over:
                piece = supply.take()
                if piece is None:
                    self.clock.sleep(0.01)
                    continue
                self.most[learner] = max(self.most[learner], len(ledger._held))
                self.clock.sleep(GRADIENT * self.factors.get(learner, 1.0))
                supply.finish(piece[0])
                self.did[learner].append(piece[0])
                self.last = max(self.last, self.clock.now())

    def part(self, learner: int) -> float:
        """What it did, as a part of what the others did each."""
        others = [len(did) for n, did in enumerate(self.did) if n != learner]
        return len(self.did[learner]) * len(others) / sum(others)


@pytest.mark.parametrize(("steps", "part", "seconds"), [(80, 0.8, 1.05), (400, 0.94, 1.02)])
def test_a_slow_link_hardly_slows_the_gradients(steps: int, part: float, seconds: float) -> None:
    """Three round trips are 87 ms and a gradient 50: claimed one by one, it would do half."""
    near, far = Race(steps, trips={}), Race(steps, trips={3: TRIP})
    print(steps, far.part(3), far.last / near.last, far.most[3], far.stores[3].calls)
    assert far.part(3) > part
    assert far.last < seconds * near.last
