"""One that is taken for dead goes on, and exits, at any call of the store: each block once."""

from __future__ import annotations

from collections import Counter

import pytest
from claimers import Crew, finish

from hadpsgd.decentralized.core import settled, work

BLOCKS = 7


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old claims are removed all the time, in small parts."""
    monkeypatch.setattr(work, "TIDY_EVERY", 1)
    monkeypatch.setattr(settled, "PART", 2)


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


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("learners", [2, 3])
@pytest.mark.parametrize("calls", range(1, 30, 2))
def test_the_buried_goes_on_and_exits(calls: int, learners: int, *, recorded: bool) -> None:
    """It stands still before any call, goes on after the others have got so far, and exits."""
    for later in (0, 6, 15, 40, 400):
        for more in range(6):
            crew = Crew(learners, BLOCKS, recorded=recorded)
            for _ in range(calls):
                crew.turns.step(0)
            crew.give_up(0)
            others_go_on(crew, later, without=0)
            goes_on_and_exits(crew, 0, calls=more)
            check(crew)


@pytest.mark.parametrize("calls", range(1, 30, 2))
def test_one_that_buries_is_buried(calls: int) -> None:
    """Learner 2 is dead; who buries it stands still in doing so, goes on, and exits."""
    for later in (0, 10, 40, 400):
        for more in (0, 1, 2, 4, 8):
            crew = Crew(3, BLOCKS, recorded=True)
            others_go_on(crew, 7, without=-1)
            for _ in range(3):
                crew.turns.step(2)
            crew.kill(2)
            for _ in range(BLOCKS * 5 + calls):
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
            crew = Crew(3, 2 * BLOCKS, recorded=True)
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
    crew = Crew(2, 60, recorded=True)
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
