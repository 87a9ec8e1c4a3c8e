"""What a change of the membership asks of the store, however many learners there are."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from typing_extensions import override

from hadpsgd.decentralized.core.stores import LocalStore
from hadpsgd.decentralized.elastic.decision import Decision, Report
from hadpsgd.decentralized.elastic.membership import Membership
from hadpsgd.decentralized.simulated.clock import VirtualClock
from hadpsgd.decentralized.topology.schedules import create

MANY = [8, 32, 128]


class CountingStore(LocalStore):
    """Counts what is asked of it; as for a store on another host, each call is a message."""

    def __init__(self, asked: Counter[int], rank: int, values: LocalStore) -> None:
        super().__init__()
        self._values = values._values
        self._asked, self._rank = asked, rank

    @override
    def __getattribute__(self, name: str) -> Any:
        if name in ("add", "set", "get", "multi_get", "check", "compare_set", "delete_key"):
            self._asked[self._rank] += 1
        return super().__getattribute__(name)


class Crew:
    """Views of many learners in virtual time."""

    def __init__(self, learners: int, *, seconds: float = 60, dead: int | None = None) -> None:
        self.clock = VirtualClock()
        self.asked: Counter[int] = Counter()
        self.pings: Counter[int] = Counter()
        self.decisions: dict[int, Decision] = {}
        values, ring = LocalStore(), create("ring", learners=learners, seed=0)

        def lives(me: int, other: int) -> bool:
            self.pings[me] += 1
            return other != dead

        self.views = [
            Membership(
                CountingStore(self.asked, rank, values),
                ring,
                rank,
                lambda other, me=rank: lives(me, other),  # type: ignore[misc]
                seconds,
                clock=self.clock,
            )
            for rank in range(learners)
        ]

    def takes_part(self, rank: int, after: float) -> None:
        """In a change."""
        self.clock.sleep(after)
        self.decisions[rank] = self.views[rank].change(Report(round=7))


@pytest.mark.parametrize("learners", MANY)
def test_who_mixes_asks_four_times_a_second(learners: int) -> None:
    crew = Crew(learners)

    def mixes(rank: int) -> None:
        for _ in range(300):  # a look between rounds
            assert not crew.views[rank].changing()
            crew.clock.sleep(0.01)

    for rank in range(learners):
        crew.clock.spawn(mixes, rank)
    crew.clock.run()
    assert len(crew.asked) == learners and max(crew.asked.values()) <= 3 * 4


@pytest.mark.parametrize("learners", MANY)
def test_a_change_with_one_that_is_silent_for_long(learners: int) -> None:
    """The last one reports after 10 seconds: 20 polls a second, and a look at the decider."""
    crew = Crew(learners)
    for rank in range(learners):
        late = 10.0 if rank == learners - 1 else 0.001 * rank
        crew.clock.spawn(crew.takes_part, rank, late)
    crew.clock.run()
    assert len({decision.to_json() for decision in crew.decisions.values()}) == 1
    assert crew.decisions[0].alive == tuple(range(learners))
    waiting = [crew.asked[rank] for rank in range(1, learners - 1)]
    assert max(waiting) < 10 * 30
    assert max(crew.pings[rank] for rank in range(1, learners - 1)) <= 10
    # the one who decides looks at everybody besides, when all have come, and before
    assert crew.asked[0] < 10 * 60 + 24 * learners
    assert 8 <= crew.pings[0] <= 11


@pytest.mark.parametrize("learners", MANY)
@pytest.mark.parametrize("dead", [0, 3])
def test_a_change_of_which_one_has_died_unnoticed(learners: int, dead: int) -> None:
    """Also the lowest, which should decide: who waits for it looks after a second."""
    crew = Crew(learners, dead=dead)
    for rank in set(range(learners)) - {dead}:
        crew.clock.spawn(crew.takes_part, rank, 0.001 * rank)
    assert crew.clock.run() < 1.5
    assert {d.alive for d in crew.decisions.values()} == {
        tuple(rank for rank in range(learners) if rank != dead)
    }
    assert sum(crew.asked.values()) < 60 * learners


def test_two_that_hang_are_given_up_one_after_the_other() -> None:
    """The decider waits for one of them, and is not taken for dead meanwhile; nor is the next."""
    crew = Crew(16, seconds=20)
    for rank in set(range(16)) - {0, 9}:
        crew.clock.spawn(crew.takes_part, rank, 0.001 * rank)
    assert crew.clock.run() < 2 * 22
    alive = {decision.alive for decision in crew.decisions.values()}
    assert alive == {tuple(sorted(set(range(16)) - {0, 9}))}
