"""Members of super-learners killed: the others go on, a new super-learner takes the place."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from crew_learner import DOOMS, Plan
from crews import Crew, check, check_bits, of_nodes, records, replayed

from hadpsgd.decentralized.core.events import Join


@pytest.fixture
def crews() -> Iterator[list[Crew]]:
    """Crews that a test hires are dismissed at its end."""
    hired: list[Crew] = []
    yield hired
    for crew in hired:
        crew.close()


def test_a_super_learner_leaves_and_another_joins(tmp_path: Path, crews: list[Crew]) -> None:
    """A member is killed: its colleague ends of itself, and both are replaced."""
    plan = Plan(tmp_path, learners=8, size=2, steps=10**6, pause=0.02)
    crew = Crew(plan)
    crews.append(crew)
    for rank in range(8):
        crew.start(rank)
    crew.under_way(60)
    crew.kill(5)
    crew.wait([4])
    assert crew.done[4].error
    crew.wait_until_all_mix()
    for rank in (4, 5):
        crew.start(rank, join=1)
    crew.wait_until_all_mix()
    crew.enough()
    results = crew.results()
    assert sorted(results) == list(range(8))
    nodes = of_nodes(plan, results)
    assert all(done.alive == (0, 1, 2, 3) for done in nodes.values())
    check(plan, nodes)
    check_bits(nodes, replayed(plan)[0])
    assert sum(isinstance(event, Join) for event in records(plan)[2]) == 1


@pytest.mark.parametrize("doom", DOOMS)
def test_a_member_dies_in_mid_exchange(
    doom: dict[str, Any], tmp_path: Path, crews: list[Crew]
) -> None:
    """With others or with its colleague: what is broken off counts for all members or for none."""
    plan = Plan(tmp_path, learners=8, size=2, steps=40)
    crew = Crew(plan)
    crews.append(crew)
    for rank in range(8):
        crew.start(rank, replace(plan, **doom) if rank == 2 else plan)
    crew.wait(list(range(8)))
    assert crew.done[2].code == -signal.SIGKILL and crew.done[3].error
    results = {rank: o.value for rank, o in crew.done.items() if o.value is not None}
    assert sorted(results) == [0, 1, 4, 5, 6, 7]
    nodes = of_nodes(plan, results)
    assert all(done.alive == (0, 2, 3) for done in nodes.values())
    check(plan, nodes)


def test_super_learners_die_and_come_among_pauses(tmp_path: Path, crews: list[Crew]) -> None:
    """As checkpoints are written meanwhile."""
    plan = Plan(tmp_path, learners=8, size=2, steps=10**6, pause=0.02, pause_every=5)
    crew = Crew(plan)
    crews.append(crew)
    for rank in range(8):
        crew.start(rank)
    crew.under_way(60)
    for life, (victim, colleague) in enumerate([(0, 1), (7, 6), (0, 1)], 1):
        os.kill(crew.running[colleague].pid, signal.SIGKILL)
        crew.kill(victim)
        crew.wait([colleague])
        for rank in (victim, colleague):
            crew.start(rank, join=life)
        crew.wait_until_all_mix()
    crew.enough()
    results = crew.results()
    assert sorted(results) == list(range(8))
    nodes = of_nodes(plan, results)
    # who came last may have seen one, or none
    assert min(nodes[survivor].pauses for survivor in (1, 2)) > 1
    check(plan, nodes)
    check_bits(nodes, replayed(plan)[0])


@pytest.mark.parametrize("steps", [60, 10**6])
def test_the_last_super_learner_pauses_and_ends_alone(
    steps: int, tmp_path: Path, crews: list[Crew]
) -> None:
    """Of itself, or because it is asked to: there is nobody left to agree with."""
    plan = Plan(tmp_path, learners=4, size=2, steps=steps, pause=0.02, pause_every=5)
    crew = Crew(plan)
    crews.append(crew)
    for rank in range(4):  # those that die would never end
        crew.start(rank, replace(plan, steps=10**6) if rank > 1 else plan)
    crew.under_way(60)
    crew.kill(2)
    crew.wait([3])
    del crew.done[3]
    if steps > 60:
        crew.wait_until_all_mix()
        crew.enough()
    nodes = of_nodes(plan, crew.results())
    assert nodes[0].alive == (0,) and nodes[0].pauses > 0
    check(plan, nodes)
    check_bits(nodes, replayed(plan)[0])
