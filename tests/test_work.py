"""Every block is done once, whoever dies when: the ledger of claims, one store call at a time."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch.distributed as dist
from claimers import CountingStore, Crew, finish
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from hadpsgd.decentralized.core.left import Left
from hadpsgd.decentralized.core.stores import LocalStore
from hadpsgd.decentralized.core.supply import Supply
from hadpsgd.decentralized.core.work import Ledger


@settings(max_examples=100, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(data=st.data())
def test_every_block_once_whatever_happens(data: st.DataObject) -> None:
    """Any interleaving of store calls and writes; between any two of them deaths, newcomers,
    restarts, and processes that are given up and go on.
    """
    crew = Crew(
        data.draw(st.integers(1, 4), "learners"),
        data.draw(st.integers(1, 14), "blocks"),
        recorded=True,
        gives=data.draw(st.integers(0, 3), "given back"),
        at_once=data.draw(st.integers(1, 3), "at once"),
    )
    for _ in range(data.draw(st.integers(0, 120), "moves")):
        living = crew.turns.living
        if not living:
            break
        moves = ["kill", "replace", "give up", "replace asleep", "restart"]
        move = data.draw(st.sampled_from(["step"] * 20 + moves))
        who = data.draw(st.sampled_from(living))
        if move == "step":
            crew.step(who)
        elif move == "restart":
            crew.restart()
        elif who in crew.asleep:
            if move == "kill":
                crew.turns.kill(who)
        elif len(crew.alive) > 1 or "replace" in move:
            (crew.kill if move in ("kill", "replace") else crew.give_up)(who)
            if "replace" in move:
                crew.start(crew.owner[who])
    finish(crew)
    assert crew.everything() == Counter(range(crew.total))


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("calls", range(1, 26))
def test_a_death_after_any_store_call(calls: int, recorded: bool) -> None:
    """Of two learners one dies after so many calls and nobody comes: the other does it all.

    Without a record its last words count; then what it had done and not told is done again, so
    only that nothing is lost can be asked.
    """
    crew = Crew(2, 9, recorded=recorded)
    for _ in range(calls):
        crew.turns.step(0)
    crew.kill(0)
    finish(crew)
    if recorded:
        assert crew.everything() == Counter(range(9))
    else:
        assert set(crew.everything()) == set(range(9))


@pytest.mark.parametrize("replaced", [True, False])
@pytest.mark.parametrize("later", [0, 8, 500])
@pytest.mark.parametrize("calls", range(4, 34))
def test_one_that_is_given_up_and_goes_on(calls: int, later: int, *, replaced: bool) -> None:
    """It stands still before a call, or a write; it wakes up when the others have got so far."""
    crew = Crew(2, 9, recorded=True)
    for _ in range(calls):
        crew.turns.step(0)
    crew.give_up(0)
    if replaced:
        crew.start(0)
    for _ in range(later):
        for number in set(crew.turns.living) - {0}:
            crew.step(number)
    finish(crew)
    assert crew.everything() == Counter(range(9))


def test_a_block_that_is_offered_twice_is_done_once() -> None:
    """Two who bury the dead both offer what was lost, and one learner takes both offers."""
    store = LocalStore()
    dead, first, second = (
        Ledger(store, Left(total=3), learner=n, learners=3, generation=0) for n in range(3)
    )
    for ledger in (dead, first, second):
        ledger.begin()
    store.add("next", 1)  # the dead one took a number, and died before it told of it
    said = store.get("state/0").decode()
    first.bury(0, until=1)
    store.set("state/0", said)  # as if both were at it at once
    second.bury(0, until=1)
    assert store.add("offers", 0) == 2
    done = []
    while (block := first.claim()) is not None:
        done.append(block)
        first.finish(block)
    assert sorted(done) == [0, 1, 2]


def test_what_is_given_back_is_anybodys() -> None:
    """Also its former owner's, but one's alone."""
    store = LocalStore()
    first, second = (Ledger(store, Left(total=3), learner=n, learners=2) for n in range(2))
    assert [first.claim(), first.claim(), second.claim()] == [0, 1, 2]
    first.give_back()
    assert second.claim() == 0
    second.give_back()
    claimed = [ledger.claim() for _ in range(2) for ledger in (first, second)]
    assert sorted(block for block in claimed if block is not None) == [0, 1, 2]


def test_a_slow_learner_asks_for_the_end_only_near_it() -> None:
    """Each call is a round trip over its link: 3 a claim, one more now and then."""
    moment, store = 0.0, CountingStore()
    ledger = Ledger(store, Left(total=1000), learner=0, learners=8, now=lambda: moment)
    ledger.begin()
    needed = []
    for _ in range(16):
        store.calls.clear()
        block = ledger.claim()
        assert block is not None
        ledger.finish(block)
        needed.append(store.calls.total())
        moment += 5.0
        store.add("next", 39)  # the others': 8 a second in all
    assert needed[3:7] == [3, 3, 3, 3] and sum(needed) <= 16 * 3 + 4
    while ledger.claim() is not None:
        moment += 5.0
        store.add("next", 39)
    assert store.add("next", 0) < 1000, "it left the last ones to the others"


def test_old_claims_are_removed() -> None:
    store = LocalStore()
    ledgers = [Ledger(store, Left(total=1000), learner=n, learners=2) for n in range(2)]
    for ledger in ledgers:
        ledger.begin()
    for _ in range(500):
        for ledger in ledgers:
            block = ledger.claim()
            assert block is not None
            ledger.finish(block)
    claims = sum(key.startswith("claim/") for key in store._values)
    assert claims < 200


class Clock:
    """Stands still unless it is told otherwise."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_slow_learner_leaves_the_last_blocks_to_the_others() -> None:
    """Learner 1 is 40 times slower than learner 0: it holds the end up by no block."""
    store, clock = LocalStore(), Clock()
    quick, slow = (
        Ledger(store, Left(total=200), learner=n, learners=2, now=clock) for n in range(2)
    )
    did: list[int] = []
    moments = []
    at_work = slow.claim()
    for second in range(1, 400):
        clock.now = second
        block = quick.claim()
        if block is not None:
            quick.finish(block)
        if second % 40 == 0 and at_work is not None:
            did.append(at_work)
            moments.append(second)
            slow.finish(at_work)
            at_work = slow.claim()
        for ledger in (quick, slow):
            ledger.tell()
        if quick.look_for_end():
            break
    assert moments == [40, 80, 120, 160]
    assert second == 196


def test_a_slow_learner_does_the_last_blocks_if_nobody_else_does() -> None:
    store, clock = LocalStore(), Clock()
    quick, slow = (
        Ledger(store, Left(total=20), learner=n, learners=2, now=clock) for n in range(2)
    )
    for second in (0, 10):
        clock.now = second
        block = slow.claim()
        assert block is not None
        slow.finish(block)
        for _ in range(8):
            block = quick.claim()
            assert block is not None
            quick.finish(block)
    assert slow.claim() is None
    clock.now = 15
    assert slow.claim() is None
    clock.now = 20
    assert slow.claim() == 18
    slow.finish(18)
    clock.now = 40
    while (block := slow.claim()) is None:
        clock.now += 1
    assert block == 19
    slow.finish(19)
    slow.tell()
    quick.tell()
    assert slow.look_for_end()


def test_equal_learners_leave_nothing() -> None:
    store, clock = LocalStore(), Clock()
    ledgers = [Ledger(store, Left(total=42), learner=n, learners=4, now=clock) for n in range(4)]
    did = 0
    for second in range(11):
        clock.now = second
        for ledger in ledgers:
            block = ledger.claim()
            assert (block is None) == (did == 42)
            if block is not None:
                ledger.finish(block)
                did += 1
    assert did == 42


def test_what_is_left_has_holes() -> None:
    left = Left.after([0, 1, 4, 6], 9)
    assert [left.block(index) for index in range(len(left))] == [2, 3, 5, 7, 8]
    assert [block for block in range(9) if block in left] == [2, 3, 5, 7, 8]
    assert Left.from_json(left.to_json()) == left


@pytest.mark.parametrize("make", [LocalStore, dist.HashStore])
def test_threads_share_the_blocks(make: Callable[[], Any]) -> None:
    """Supplies in threads, on torch's own store, too."""
    store, learners, total = make(), 4, 200
    did: list[list[int]] = [[] for _ in range(learners)]

    def work(learner: int) -> None:
        ledger = Ledger(store, Left(total=total), learner=learner, learners=learners)
        with Supply(ledger, lambda block: block * 2) as supply:
            while not supply.over:
                piece = supply.take()
                if piece is not None:
                    block, content = piece
                    assert content == 2 * block
                    did[learner].append(block)
                    supply.finish(block)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(learners)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert Counter(block for blocks in did for block in blocks) == Counter(range(total))


def test_an_error_of_the_thread_is_the_callers() -> None:
    def read(block: int) -> int:
        raise OSError(f"block {block} cannot be read")

    supply = Supply(Ledger(LocalStore(), Left(total=3), learner=0, learners=1), read)
    with supply, pytest.raises(OSError, match="block 0 cannot be read"):
        supply.take()
