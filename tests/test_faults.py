"""Learners killed in mid-exchange, again and again: the others go on, the mean is kept."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dense
import numpy as np
import pytest
from crew_learner import DOOMS, LOSE_CONNECTIONS, Plan
from crews import Crew, check, check_bits, nothing, records, replayed, starts

from hadpsgd.decentralized.core.events import Join, Mix


@pytest.fixture
def crews() -> Iterator[list[Crew]]:
    """Crews that a test hires are dismissed at its end."""
    hired: list[Crew] = []
    yield hired
    for crew in hired:
        crew.close()


def under_way(plan: Plan, crews: list[Crew]) -> Crew:
    """All its learners, mixing; ended with the test."""
    crew = Crew(plan)
    crews.append(crew)
    for rank in range(plan.learners):
        crew.start(rank)
    crew.under_way()
    return crew


@pytest.mark.parametrize("schedule", ["ring", "random-ring", "pairwise"])
@pytest.mark.parametrize(
    "doom",
    [*DOOMS, {"die_after_bytes": 20_001}],
    ids=lambda doom: "-".join(map(str, *doom.items())),
)
def test_death_in_mid_exchange(
    schedule: str, doom: dict[str, Any], tmp_path: Path, crews: list[Crew]
) -> None:
    """The ring heals within 5 s; the survivors finish."""
    plan = Plan(tmp_path, learners=5, schedule=schedule)
    crew = Crew(plan)
    crews.append(crew)
    for rank in range(5):
        crew.start(rank, replace(plan, **doom) if rank == 2 else plan)
    results = crew.results()
    assert crew.done[2].code == -signal.SIGKILL
    assert sorted(results) == [0, 1, 3, 4]
    assert all(done.alive == (0, 1, 3, 4) for done in results.values())
    assert max(done.longest_wait for done in results.values()) < 5
    check(plan, results)


def test_two_die_at_once(tmp_path: Path, crews: list[Crew]) -> None:
    plan = Plan(tmp_path, learners=6, steps=150)
    crew = under_way(plan, crews)
    for rank in (1, 4):
        os.kill(crew.running[rank].pid, signal.SIGKILL)
    results = crew.results()
    assert sorted(results) == [0, 2, 3, 5]
    assert all(done.alive == (0, 2, 3, 5) for done in results.values())
    check(plan, results)


def test_the_survivors_keep_their_mean(tmp_path: Path, crews: list[Crew]) -> None:
    """Without gradients nothing but mixing moves weights: what is lost is what the dead held."""
    plan = Plan(tmp_path, learners=5, still=True, steps=100)
    crew = Crew(plan)
    crews.append(crew)
    for rank in range(5):
        crew.start(rank)
    crew.under_way(100)
    crew.kill(3)
    results = crew.results()
    check(plan, results)
    record, start = records(plan), starts(plan)
    versions = dense.evaluate(record, start, nothing)
    # the dead learner's weights, with the exchanges that its partners had settled with it
    rounds = {e.round for e in record[3] if isinstance(e, Mix)}
    held = versions[3][-1].copy()
    for node in results:
        for event in (event for event in record[node] if isinstance(event, Mix)):
            for partner, weight, version in event.takes:
                if partner == 3 and event.round not in rounds:
                    held += weight * (versions[node][event.own] - versions[3][version])
    total = sum(done.weights for done in results.values()) + held
    np.testing.assert_allclose(total, sum(start.values()), rtol=1e-9, atol=1e-9)


def test_a_newcomer_takes_the_place_of_the_dead(tmp_path: Path, crews: list[Crew]) -> None:
    plan = Plan(tmp_path, learners=4, steps=250)
    crew = under_way(plan, crews)
    crew.kill(2)
    time.sleep(0.3)
    crew.start(2, join=1)
    results = crew.results()
    assert sorted(results) == [0, 1, 2, 3]
    assert all(done.alive == (0, 1, 2, 3) for done in results.values())
    check(plan, results)
    check_bits(results, replayed(plan)[0])
    assert sum(isinstance(event, Join) for event in records(plan)[2]) == 1


@pytest.mark.parametrize("schedule", ["ring", "random-ring", "pairwise"])
@pytest.mark.parametrize("after", [0.0, 0.1, 0.2])
def test_a_death_near_the_end(
    schedule: str, after: float, tmp_path: Path, crews: list[Crew]
) -> None:
    """Some have finished, and start no rounds of themselves: they end all the same, together."""
    plan = Plan(tmp_path, schedule=schedule, steps=30, pause=0.01)
    crew = under_way(plan, crews)
    time.sleep(after)
    crew.kill(1)
    crew.start(1, join=1)
    crew.wait([0, 1, 2, 3])
    errors = {rank: outcome.error for rank, outcome in crew.done.items() if outcome.error}
    assert errors.keys() <= {1} and "TooLateError" in errors.get(1, "TooLateError"), errors
    check(plan, {rank: o.value for rank, o in crew.done.items() if o.value is not None})


def test_the_last_to_compute_gradients_dies(tmp_path: Path, crews: list[Crew]) -> None:
    """The others have finished and start no rounds: they see that it is gone, and end."""
    plan = Plan(tmp_path, steps=30, pause=0.01)
    crew = Crew(plan)
    crews.append(crew)
    for rank in range(4):
        crew.start(rank, replace(plan, steps=10**6) if rank == 3 else plan)
    crew.under_way()
    time.sleep(2)  # long enough to finish
    crew.kill(3)
    results = crew.results()
    assert sorted(results) == [0, 1, 2]
    assert all(done.alive == (0, 1, 2) and done.steps == 30 for done in results.values())
    check(plan, results)


def test_deaths_among_pauses(tmp_path: Path, crews: list[Crew]) -> None:
    """As checkpoints are written while learners die and come."""
    plan = Plan(tmp_path, learners=5, steps=10**6, pause=0.03, pause_every=4)
    crew = under_way(plan, crews)
    crew.kill_and_replace(12)
    crew.wait_until_all_mix()
    crew.enough()
    results = crew.results()
    assert sorted(results) == list(range(5))
    assert max(done.pauses for done in results.values()) > 1
    check(plan, results)


def test_connections_that_break_between_the_living(tmp_path: Path, crews: list[Crew]) -> None:
    """They connect anew; who is slow to say that it lives may be given up, and ends.

    No exchange counts on one side alone.
    """
    plan = Plan(tmp_path, learners=4, steps=10**6)
    crew = under_way(plan, crews)
    for victim in (2, 0, 3):
        if victim in crew.running:
            os.kill(crew.running[victim].pid, LOSE_CONNECTIONS)
        crew.wait_until_the_living_mix()
    crew.enough()
    crew.wait(list(crew.running))
    errors = {rank: outcome.error for rank, outcome in crew.done.items() if outcome.error}
    assert all("ExcludedError" in error for error in errors.values()), errors
    results = {rank: o.value for rank, o in crew.done.items() if o.value is not None}
    assert results
    check(plan, results)


@pytest.mark.slow
def test_fifty_deaths(tmp_path: Path, crews: list[Crew]) -> None:
    """8 learners, 50 times one is killed and a newcomer takes its place: no hang, no NaN."""
    plan = Plan(tmp_path, learners=8, steps=10**6, pause=0.15)
    crew = under_way(plan, crews)
    crew.kill_and_replace(50)
    crew.wait_until_all_mix()
    crew.enough()
    results = crew.results()
    assert sorted(results) == list(range(8))
    assert all(done.alive == tuple(range(8)) for done in results.values())
    check(plan, results)
    joins = sum(isinstance(event, Join) for events in records(plan).values() for event in events)
    assert 40 <= joins <= 50  # a victim may die again before it has joined
    learners, losses = replayed(plan)
    check_bits(results, learners)
    for steps in losses.values():
        assert np.mean(steps[-20:]) < 0.5 * np.mean(steps[:5])
