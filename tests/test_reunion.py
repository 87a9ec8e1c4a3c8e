"""Members of super-learners killed: new ones come to the first member, which went on alone."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch.distributed as dist
from crews import PATIENCE, Crew, Plan, check, check_bits, of_nodes, records, replayed
from test_members_alone import crews, leave_alone

from hadpsgd.decentralized.core.events import Join, Update
from hadpsgd.decentralized.elastic.decision import Decision
from hadpsgd.decentralized.network import rendezvous

__all__ = ["crews"]


def times_whole_again(crew: Crew, node: int) -> int:
    """How many changes of the membership have said so of a super-learner."""
    store = rendezvous.of_attempt(dist.TCPStore("127.0.0.1", crew.port, is_master=False), "0")
    epoch = found = 0
    while store.check([key := f"mixing/members/{epoch + 1}/decision"]):
        found += node in Decision.from_json(store.get(key).decode()).restored
        epoch += 1
    return found


def make_whole(crew: Crew, node: int, life: int) -> None:
    """Start new members for those that are missing, and wait until they take part."""
    before = times_whole_again(crew, node)
    for rank in crew.plan.members(node)[1:]:
        if rank not in crew.running:
            crew.start(rank, join=life, returns=True)
    deadline = time.monotonic() + PATIENCE
    while times_whole_again(crew, node) == before:
        assert time.monotonic() < deadline, crew.ended()
        time.sleep(0.02)
    crew.wait_until_all_mix()


def updates(plan: Plan, node: int) -> int:
    """In a super-learner's record."""
    return sum(isinstance(event, Update) for event in records(plan)[node])


@pytest.mark.parametrize(("size", "times"), [(2, 2), (3, 1)])
def test_new_members_have_weights_and_momentum(
    size: int, times: int, tmp_path: Path, crews: list[Crew]
) -> None:
    """Again when they die, too: nothing of it is in the record."""
    plan = Plan(tmp_path, learners=2 * size, size=size, steps=10**6, pause=0.1, reduces=True)
    crew = Crew(plan)
    crews.append(crew)
    for rank in range(plan.learners):
        crew.start(rank)
    crew.under_way(60)
    joins = lives = 0
    for _ in range(times):
        more = leave_alone(crew, 0, Crew.kill, lives=lives)
        joins, lives = joins + more - lives, more + 1
        make_whole(crew, 0, lives)
    crew.enough()
    results = crew.results()
    assert sorted(results) == list(range(plan.learners))
    nodes = of_nodes(plan, results)
    check(plan, nodes)
    check_bits(nodes, replayed(plan)[0])
    assert sum(isinstance(event, Join) for event in records(plan)[0]) == joins


def test_the_first_member_waits_and_mixes_until_others_come(
    tmp_path: Path, crews: list[Crew]
) -> None:
    """It takes no gradient alone, and stands still with all at pauses."""
    plan = Plan(tmp_path, learners=4, size=2, steps=10**6, pause=0.1, reduces=True, waits=True)
    plan = replace(plan, pause_every=9)
    crew = Crew(plan)
    crews.append(crew)
    for rank in range(4):
        crew.start(rank)
    crew.under_way(60)
    lives = leave_alone(crew, 0, Crew.kill)
    crew.wait_until_all_mix()
    before = updates(plan, 0)
    crew.wait_until_all_mix()
    assert updates(plan, 0) == before
    make_whole(crew, 0, lives + 1)
    while updates(plan, 0) < before + 20:
        crew.wait_until_all_mix()
    crew.enough()
    results = crew.results()
    assert sorted(results) == [0, 1, 2, 3]
    nodes = of_nodes(plan, results)
    check(plan, nodes)
    check_bits(nodes, replayed(plan)[0])
    assert sum(isinstance(event, Join) for event in records(plan)[0]) == lives


def test_who_comes_back_after_the_end_is_too_late(tmp_path: Path, crews: list[Crew]) -> None:
    plan = Plan(tmp_path, learners=4, size=2, steps=10**6, pause=0.1, reduces=True)
    crew = Crew(plan)
    crews.append(crew)
    for rank in range(4):
        crew.start(rank)
    crew.under_way(60)
    lives = leave_alone(crew, 0, Crew.kill)
    crew.enough()
    crew.wait([0, 2, 3])
    crew.start(1, join=lives + 1, returns=True)
    crew.wait([1])
    assert "TooLateError" in crew.done.pop(1).error
    nodes = of_nodes(plan, crew.results())
    check_bits(nodes, replayed(plan)[0])
