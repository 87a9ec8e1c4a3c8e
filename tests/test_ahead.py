"""How far ahead a learner claims over a slow link to the store, in virtual time."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from hadpsgd.decentralized.core.ahead import MOST, Ahead
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


def measured(*, trip: float, gradient: float) -> Ahead:
    """After a call and a gradient."""
    ahead = Ahead()
    ahead.asked(trip)
    ahead.computed(gradient)
    return ahead


def test_a_quick_store_is_asked_one_ahead() -> None:
    """So it is while nothing is measured."""
    unknown, quick = Ahead(), measured(trip=0.008, gradient=GRADIENT)
    unknown.asked(10.0)
    for ahead in (unknown, quick):
        assert (ahead.slow, ahead.at_once, ahead.blocks) == (False, 1, 1)


@pytest.mark.parametrize("trip", [0.009, 0.015, 0.02, 0.029, 0.03])
def test_so_many_at_once_that_claims_keep_up(trip: float) -> None:
    """And no fewer would do; what is ready lasts while more are claimed."""
    ahead = measured(trip=trip, gradient=GRADIENT)
    assert (2 + ahead.at_once) * trip <= 0.8 * ahead.at_once * GRADIENT
    assert (1 + ahead.at_once) * trip > 0.8 * (ahead.at_once - 1) * GRADIENT
    assert ahead.blocks * GRADIENT >= (3 + ahead.at_once) * trip


def test_a_link_that_cannot_keep_up_has_a_limit() -> None:
    ahead = measured(trip=1.0, gradient=GRADIENT)
    assert ahead.at_once == MOST and ahead.blocks <= MOST + 3


def test_one_slow_call_changes_nothing() -> None:
    ahead = measured(trip=0.001, gradient=GRADIENT)
    for _ in range(2):
        ahead.asked(0.001)
    ahead.asked(5.0)
    assert not ahead.slow


def test_near_the_end_nobody_claims_more_than_a_share() -> None:
    """What it holds is a part of that; a claim on its way lets time pass, too."""
    ahead = measured(trip=TRIP, gradient=GRADIENT)
    begins = ahead.blocks
    found = [ahead.spare(share=share, held=0) for share in (-3.0, 0.0, begins + 2.5, 100.0)]
    assert found == [0, 0, 2, 100 - begins]
    assert ahead.spare(share=begins + 2.5, held=begins + 1) == 1


@pytest.mark.parametrize(("steps", "part", "seconds"), [(80, 0.85, 1.04), (400, 0.96, 1.02)])
def test_a_slow_link_hardly_slows_the_gradients(steps: int, part: float, seconds: float) -> None:
    """Three round trips are 87 ms and a gradient 50: claimed one by one, it would do half.

    Its old claims wait, and are removed while nothing else does.
    """
    near, far = Race(steps, trips={}), Race(steps, trips={3: TRIP})
    assert far.part(3) > part
    assert far.last < seconds * near.last
    assert far.most[3] < 14 and max(far.most[:3] + far.most[4:]) <= 2
    assert near.stores[3].calls["compare_set"] <= 2.2 * len(near.did[3])
    if steps == 400:
        assert far.stores[3].calls["delete_key"] > 0


def test_one_by_one_it_does_half(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hadpsgd.decentralized.core.ahead.QUICK", float("inf"))
    assert 0.4 < Race(80, trips={3: TRIP}).part(3) < 0.6
    assert 0.4 < Race(400, trips={3: TRIP}).part(3) < 0.6


def test_a_slow_link_and_slow_gradients_do_not_hold_the_end_up() -> None:
    """5 times slower, over a link on which even those gradients would wait."""
    near = Race(80, trips={})
    far = Race(80, trips={3: 5 * TRIP}, factors={3: 5.0})
    assert far.last < 1.15 * near.last


def test_the_last_blocks_of_a_slow_link_are_shared() -> None:
    """A short run: a learner that claims far ahead leaves the others something to do."""
    near, far = Race(12, trips={}), Race(12, trips={3: TRIP})
    assert far.last < near.last + 3 * GRADIENT


def test_all_that_a_dead_learner_held_goes_back() -> None:
    store = LocalStore()
    dead, other = (Ledger(store, Left(total=9), learner=n, learners=2) for n in range(2))
    held = dead.claim_some(4)
    assert len(held) > 1
    other.bury(0, until=0)
    did = []
    while (block := other.claim()) is not None:
        other.finish(block)
        did.append(block)
    assert sorted(did) == list(range(9))
