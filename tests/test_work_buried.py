"""One that is taken for dead goes on, and exits, at any call of the store: each block once."""

from __future__ import annotations

from collections import Counter

import pytest
from claimers import Crew, finish

from hadpsgd.decentralized.core import settled, tidying
from hadpsgd.decentralized.core.left import Left
from hadpsgd.decentralized.core.stores import LocalStore
from hadpsgd.decentralized.core.work import Ledger

BLOCKS = 7


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old claims are removed all the time, in small parts."""
    monkeypatch.setattr(tidying, "TIDY_EVERY", 1)
    monkeypatch.setattr(settled, "PART", 2)


def begun(learners: int, total: int, *, recorded: bool, at_once: int = 1) -> Crew:
    """They have claimed nothing yet."""
    crew = Crew(learners, total, recorded=recorded, at_once=at_once)
    for learner in range(learners):
        crew.go_to(learner, "add next")
    return crew


def others_go_on(crew: Crew, rounds: int, *, without: int) -> None:
    """All but one take a turn, so many times."""
    for _ in range(rounds):
        for number in set(crew.turns.living) - {without}:
            crew.step(number)


def goes_on_and_exits(crew: Crew, number: int, *, calls: int) -> None:
    """So many calls of the store, then no more."""
    for _ in range(calls):
        if number in crew.turns.living:
            crew.step(number)
    if number in crew.turns.living:
        crew.turns.kill(number)


def check(crew: Crew) -> None:
    """All who live come to the end, and every block was done, once where records say so."""
    finish(crew)
    done = crew.everything()
    assert set(done) == set(range(crew.total))
    assert not crew.recorded or done.total() == crew.total


def test_it_takes_a_number_after_its_burial_and_exits() -> None:
    """Who buried it knew nothing of that number, and others have taken later ones since."""
    crew = begun(2, BLOCKS, recorded=True)
    crew.go_to(0, "add next")
    crew.give_up(0)
    others_go_on(crew, 20, without=0)
    goes_on_and_exits(crew, 0, calls=1)
    check(crew)


@pytest.mark.parametrize("later", [20, 100, 200, 300])
def test_its_number_was_lost_and_done_and_the_claim_removed(later: int) -> None:
    """It took it before its burial, and tells of it when others have done that block."""
    crew = begun(3, 10 * BLOCKS, recorded=True)
    crew.go_to(0, "add next")
    crew.step(0)
    crew.give_up(0)
    others_go_on(crew, later, without=0)
    check(crew)


@pytest.mark.parametrize("later", [20, 100, 200, 300])
def test_one_that_lives_is_late_with_its_number(later: int) -> None:
    """Another one died meanwhile: its number was taken for lost, and that block was done."""
    crew = begun(3, 10 * BLOCKS, recorded=True)
    crew.step(2)
    crew.kill(1)
    others_go_on(crew, later, without=2)
    check(crew)


def test_only_what_was_told_is_counted() -> None:
    """A block that is done while others hear of those before it is still in the words."""
    store = LocalStore()
    ledger = Ledger(store, Left(total=2), learner=0, learners=1)
    assert [ledger.claim(), ledger.claim()] == [0, 1]
    ledger.finish(0)
    ledger.durable = lambda: ledger.finish(1)
    ledger.tell()
    ledger.durable = lambda: None
    ledger.tidy()
    assert store.add("settled/0", 0) == 1


@pytest.mark.parametrize("later", [10, 20, 40, 80])
def test_claims_are_removed_while_a_newcomer_comes(later: int) -> None:
    """Numbers are looked for after it has come: what is done is not lost."""
    crew = begun(3, 5 * BLOCKS, recorded=True)
    crew.kill(2)
    crew.start(2)
    newcomer = max(crew.turns.living)
    crew.go_to(newcomer, "write")
    others_go_on(crew, later, without=newcomer)
    crew.go_to(newcomer, "add next")
    crew.kill(1)
    others_go_on(crew, 60, without=newcomer)
    check(crew)


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("learners", [2, 3])
@pytest.mark.parametrize("calls", range(1, 30))
def test_the_buried_goes_on_and_exits(calls: int, learners: int, *, recorded: bool) -> None:
    """It stands still before any call, goes on after the others have got so far, and exits."""
    for later in (0, 6, 15, 40, 400):
        for more in range(6):
            crew = begun(learners, BLOCKS, recorded=recorded, at_once=1 + calls // 2 % 3)
            for _ in range(calls):
                crew.turns.step(0)
            crew.give_up(0)
            others_go_on(crew, later, without=0)
            goes_on_and_exits(crew, 0, calls=more)
            check(crew)


@pytest.mark.parametrize("calls", range(1, 30))
def test_one_that_buries_is_buried(calls: int) -> None:
    """Learner 2 is dead; who buries it stands still in doing so, goes on, and exits."""
    for later in (0, 10, 40, 400):
        for more in (0, 1, 2, 4, 8):
            crew = begun(3, BLOCKS, recorded=True)
            others_go_on(crew, 5, without=0)
            crew.kill(2)
            for _ in range(calls):
                if 0 in crew.turns.living:
                    crew.turns.step(0)
            if 0 in crew.turns.living:
                crew.give_up(0)
            others_go_on(crew, later, without=0)
            goes_on_and_exits(crew, 0, calls=more)
            check(crew)


@pytest.mark.parametrize("calls", range(1, 24))
def test_a_newcomer_stands_still_and_another_one_dies(calls: int) -> None:
    """Claims are removed while it comes, and lost numbers are looked for afterwards."""
    for before in (4, 9):
        for later in (0, 10, 20, 30):
            crew = begun(3, 2 * BLOCKS, recorded=True)
            for _ in range(before):
                crew.turns.step(0)
            crew.kill(0)
            crew.start(0)
            newcomer = max(crew.turns.living)
            for _ in range(calls):
                crew.step(newcomer)
            others_go_on(crew, later, without=newcomer)
            for _ in range(9):
                crew.step(newcomer)
            crew.kill(1)
            check(crew)


def test_a_number_that_the_buried_took_does_not_keep_old_claims_for_ever() -> None:
    """It went on, took a number, and died: others find it long before the end."""
    crew = begun(2, 60, recorded=True)
    for _ in range(12):
        crew.turns.step(0)
    crew.give_up(0)
    others_go_on(crew, 150, without=0)
    goes_on_and_exits(crew, 0, calls=2)
    others_go_on(crew, 500, without=0)
    claims = sum(key.startswith("claim/") for key in crew.store._values)
    assert claims < 20
    finish(crew)
    assert crew.everything() == Counter(range(60))
