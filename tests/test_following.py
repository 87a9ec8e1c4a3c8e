"""Members of a super-learner take the same work in the same order: threads, no real time."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hadpsgd.decentralized.core.following import Following, Given, Leading, MemberSupply
from hadpsgd.decentralized.core.left import Left
from hadpsgd.decentralized.core.stores import LocalStore
from hadpsgd.decentralized.core.supply import Claims
from hadpsgd.decentralized.core.work import Ledger

SECONDS = 120.0
Taken = list[tuple[int, int] | None]


class SuperLearners:
    """All members as threads; those of one meet at every turn, as at a gradient or a rest."""

    def __init__(self, *, nodes: int, size: int, total: int, ahead: int) -> None:
        self.nodes, self.size, self.total, self.ahead = nodes, size, total, ahead
        self.store = LocalStore()
        self.taken: dict[tuple[int, int], Taken] = {}
        self.errors: list[BaseException] = []

    def run(self) -> None:
        """Until all is done."""
        threads = []
        for node in range(self.nodes):
            turn = threading.Barrier(self.size, timeout=SECONDS)
            for member in range(self.size):
                arguments = (node, member, turn)
                threads.append(threading.Thread(target=self._guarded, args=arguments, daemon=True))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
            assert not thread.is_alive()
        assert not self.errors, self.errors

    def _guarded(self, node: int, member: int, turn: threading.Barrier) -> None:
        try:
            self._member(node, member, turn)
        except BaseException as error:
            turn.abort()
            self.errors.append(error)

    def _member(self, node: int, member: int, turn: threading.Barrier) -> None:
        given = Given(self.store, f"given/{node}/0", seconds=SECONDS)
        decisions: Leading | Following = Following(given)
        if member == 0:
            left = Left(total=self.total)
            ledger = Ledger(self.store, left, learner=node, learners=self.nodes)
            decisions = Leading(Claims(ledger), given, ahead=self.ahead)
        taken = self.taken[node, member] = []
        supply = MemberSupply(decisions, lambda block: block * self.size + member, ahead=self.ahead)
        with supply:
            while not supply.over:
                found = supply.take()
                taken.append(found)
                turn.wait()
                if found is not None:
                    supply.finish(found[0])
            assert supply.take() is None


@settings(max_examples=25, deadline=None)
@given(
    nodes=st.integers(1, 3),
    size=st.integers(1, 3),
    total=st.integers(0, 12),
    ahead=st.integers(1, 3),
)
def test_members_take_the_same(nodes: int, size: int, total: int, ahead: int) -> None:
    """Each block once, by all members of one super-learner, each its own part, in one order."""
    crew = SuperLearners(nodes=nodes, size=size, total=total, ahead=ahead)
    crew.run()
    blocks: Counter[int] = Counter()
    for node in range(nodes):
        orders = []
        for member in range(size):
            taken = crew.taken[node, member]
            orders.append([found and found[0] for found in taken])
            parts = [found for found in taken if found is not None]
            assert all(part == block * size + member for block, part in parts)
        assert all(order == orders[0] for order in orders)
        blocks.update(block for block in orders[0] if block is not None)
    assert blocks == Counter(range(total))
    words = [key for key in crew.store._values if key.startswith("given/")]
    assert len(words) <= nodes * (ahead + 1)


def test_who_hears_nothing_says_so() -> None:
    with pytest.raises(TimeoutError, match="first member of the super-learner did not say"):
        Given(LocalStore(), "given/0/0", seconds=0).read("0")


def test_what_went_wrong_elsewhere_ends_the_wait() -> None:
    """A first member that died says nothing any more, but the mixing notices."""

    def check() -> None:
        raise ConnectionError("lost")

    supply = MemberSupply(
        Following(Given(LocalStore(), "given/0/0", seconds=SECONDS)), lambda b: b, check=check
    )
    with supply, pytest.raises(ConnectionError, match="lost"):
        supply.take()
