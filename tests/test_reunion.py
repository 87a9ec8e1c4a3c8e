"""Members of super-learners killed: new ones come to the first member, which went on alone."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch.distributed as dist
from crew_learner import PATIENCE, Plan
from crews import Crew, check, check_bits, of_nodes, records, replayed
from test_members_alone import crews, leave_alone

from hadpsgd.decentralized.core.events import Join, Update
from hadpsgd.decentralized.elastic.decision import Decision
from hadpsgd.decentralized.network import rendezvous
from hadpsgd.decentralized.topology.schedules import create

__all__ = ["crews"]


def store_of(crew: Crew) -> dist.Store:
    return rendezvous.of_attempt(dist.TCPStore("127.0.0.1", crew.port, is_master=False), "0")


def decisions(crew: Crew) -> list[Decision]:
    """On the membership so far."""
    store = store_of(crew)
    found: list[Decision] = []
    while store.check([key := f"mixing/members/{len(found) + 1}/decision"]):
        found.append(Decision.from_json(store.get(key).decode()))
    return found


def times_whole_again(crew: Crew, node: int) -> int:
    """How many changes of the membership have said so of a super-learner."""
    return sum(node in decision.restored for decision in decisions(crew))


def until(crew: Crew, there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not there():
        assert time.monotonic() < deadline, crew.ended()
        time.sleep(0.02)


def settled(crew: Crew, node: int) -> bool:
    """Whether the last change lets a super-learner go, or go on by its first member alone."""
    found = decisions(crew)
    return bool(found) and (node not in found[-1].alive or node in found[-1].reduced)


def make_whole(crew: Crew, node: int, life: int) -> None:
    """Start new members for those that are missing, and wait until they take part."""
    before = times_whole_again(crew, node)
    for rank in crew.plan.members(node)[1:]:
        if rank not in crew.running:
            crew.start(rank, join=life, returns=True)
    until(crew, lambda: times_whole_again(crew, node) > before)
    crew.wait_until_all_mix()


def torn(plan: Plan, decision: Decision, node: int) -> bool:
    """Whether the first member lacks what a partner counts, so that it must end."""
    report = decision.reports[plan.members(node)[0]]
    ring = create(plan.schedule, learners=plan.nodes, seed=0).round(report.round)
    counted = any(decision.past(j, round_=report.round) for j in ring.receives(node))
    return node in decision.shrunk and report.exchanging and counted


def lives_on(crew: Crew, node: int) -> bool:
    """Whether a super-learner's first member is known to go on without the other one, or ends."""
    first, deadline = crew.plan.members(node)[0], time.monotonic() + PATIENCE
    while first in crew.running:
        found = [decision for decision in decisions(crew) if node in decision.shrunk]
        if found and not torn(crew.plan, found[-1], node):
            return True
        assert time.monotonic() < deadline, "nobody hears of it"
        crew.reap([first])
        time.sleep(0.02)
    assert "TornError" in (error := crew.done.pop(first).error) or "lost ranks" in error
    return False


def updates(plan: Plan, node: int) -> int:
    """In a super-learner's record."""
    return sum(isinstance(event, Update) for event in records(plan)[node])


def joins_at_the_end(crew: Crew) -> dict[int, int]:
    """How often each super-learner joined; at the end all are there, as replayed."""
    crew.enough()
    results, plan = crew.results(), crew.plan
    assert sorted(results) == list(range(plan.learners))
    nodes = of_nodes(plan, results)
    check(plan, nodes)
    check_bits(nodes, replayed(plan)[0])
    return {n: sum(isinstance(e, Join) for e in found) for n, found in records(plan).items()}


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
    assert joins_at_the_end(crew)[0] == joins


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
    assert joins_at_the_end(crew)[0] == lives


def test_two_neighbours_that_wait_at_once_are_both_whole_again(
    tmp_path: Path, crews: list[Crew]
) -> None:
    """Nobody takes gradients, so nobody mixes; both let new members in at one time."""
    plan = Plan(tmp_path, learners=4, size=2, steps=10**6, pause=0.1, reduces=True, waits=True)
    crew = Crew(plan)
    crews.append(crew)
    for rank in range(4):
        crew.start(rank)
    crew.under_way(60)
    for rank in (1, 3):
        os.kill(crew.running[rank].pid, signal.SIGKILL)
    crew.wait([1, 3])
    for rank in (1, 3):
        assert crew.done.pop(rank).error == "died"
    struck = [node for node in (0, 1) if not lives_on(crew, node)]
    lives = {node: int(node in struck) for node in (0, 1)}
    for node in struck:  # one that lacked what the other counts comes again as a whole
        for rank in plan.members(node):
            crew.start(rank, join=1)
    waiting = [node for node in (0, 1) if node not in struck]
    before = {node: updates(plan, node) for node in (0, 1)}
    for node in waiting:
        crew.start(2 * node + 1, join=1, returns=True)
    deadline = time.monotonic() + PATIENCE
    while any(updates(plan, node) < before[node] + 5 for node in (0, 1)):
        assert time.monotonic() < deadline, crew.ended()
        crew.wait_until_all_mix()
    assert all(times_whole_again(crew, node) == 1 for node in waiting)
    assert joins_at_the_end(crew) == lives


def test_a_neighbour_joins_one_that_is_whole_again_by_the_same_change(
    tmp_path: Path, crews: list[Crew]
) -> None:
    """Its weights are the first member's: the other one has none yet."""
    plan = Plan(tmp_path, learners=4, size=2, steps=10**6, pause=0.05, reduces=True)
    crew = Crew(plan)
    crews.append(crew)
    for rank in range(4):
        crew.start(rank, replace(plan, deaf=True))
    crew.under_way(60)
    for struck in ([0, 1], [3]):
        for rank in struck:
            os.kill(crew.running[rank].pid, signal.SIGKILL)
        crew.wait(struck)
        assert all(crew.done.pop(rank).error == "died" for rank in struck)
        until(crew, partial(settled, crew, struck[0] // plan.size))
    coming = f"mixing/members/{len(decisions(crew)) + 1}/join/0"
    for rank in (0, 1):
        crew.start(rank, join=1)
    until(crew, lambda: store_of(crew).check([coming]))
    crew.start(3, join=1, returns=True)
    until(crew, lambda: times_whole_again(crew, 1) == 1)
    (both,) = (decision for decision in decisions(crew) if 1 in decision.restored)
    assert 0 in both.newcomers
    crew.wait_until_all_mix()
    assert joins_at_the_end(crew) == {0: 1, 1: 0}


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
