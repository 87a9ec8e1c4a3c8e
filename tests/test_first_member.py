"""First members killed, stopped or cut off: the others go on, and are whole again."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch.distributed as dist
from crew_learner import PATIENCE, Done, Plan, file_of
from crews import Crew, check, check_bits, of_nodes, records, replayed
from test_members_alone import crews, helped, leave_alone, lose_connections
from test_reunion import make_whole, updates

from hadpsgd.decentralized.core.events import Join
from hadpsgd.decentralized.network import rendezvous

__all__ = ["crews"]


def wait_until_all_stand_still(crew: Crew) -> None:
    """A stopped process accepts connections: everybody waits for it, and nobody gives it up."""
    before, deadline = -1, time.monotonic() + PATIENCE
    while (
        now := sum(file_of(crew.plan, n).stat().st_size for n in range(crew.plan.nodes))
    ) > before:
        assert time.monotonic() < deadline, "nobody waits for who was stopped"
        before = now
        time.sleep(1.0)


def first_dies(crew: Crew, node: int, *, heir: int, life: int, stopped: bool = False) -> None:
    """Kill it; another member, which has its rank from now on, takes its place.

    `stopped`: as the launcher does to one that has given no sign of life.
    """
    first = crew.plan.members(node)[0]
    store = rendezvous.of_attempt(dist.TCPStore("127.0.0.1", crew.port, is_master=False), "0")
    if stopped:
        os.kill(crew.running[first].pid, signal.SIGSTOP)
        wait_until_all_stand_still(crew)
    crew.kill(first)
    assert crew.done.pop(first).error == "died"
    before = updates(crew.plan, node)
    store.set(f"heir/{node}", f"{heir} {life}")
    crew.running[first] = crew.running.pop(heir)
    deadline = time.monotonic() + PATIENCE
    while updates(crew.plan, node) < before + 5:
        assert time.monotonic() < deadline, crew.ended()
        time.sleep(0.02)


@pytest.mark.parametrize(("size", "stopped"), [(2, False), (3, False), (2, True)])
def test_the_second_takes_the_place_of_the_first(
    size: int, stopped: bool, tmp_path: Path, crews: list[Crew]
) -> None:
    """It joins from a neighbour, goes on for all members with those that help it, and is whole
    again with new ones; what it records is what all of them would have done, bit for bit.
    """
    plan = Plan(tmp_path, learners=2 * size, size=size, steps=10**6, pause=0.1, reduces=True)
    plan = replace(plan, inherits=True)
    crew = Crew(plan)
    crews.append(crew)
    for rank in range(plan.learners):
        crew.start(rank)
    crew.under_way(60)
    first_dies(crew, 0, heir=1, life=1, stopped=stopped)
    if size == 3:
        assert {member for member, _ in helped(plan, 2, 5)} == {1, 2}
    crew.wait_until_all_mix()
    make_whole(crew, 0, 2)
    crew.enough()
    results = crew.results()
    assert sorted(results) == list(range(plan.learners))
    finish(plan, results, joins=1)


def test_who_took_the_place_dies_too_and_a_neighbour(tmp_path: Path, crews: list[Crew]) -> None:
    """The last one of three goes on alone, and gives its weights to who comes again as a whole."""
    plan = Plan(tmp_path, learners=6, size=3, steps=10**6, pause=0.05, reduces=True)
    plan = replace(plan, inherits=True)
    crew = Crew(plan)
    crews.append(crew)
    for rank in range(plan.learners):
        crew.start(rank)
    crew.under_way(60)
    for life, heir in ((1, 1), (2, 2)):
        first_dies(crew, 0, heir=heir, life=life)
    first_dies(crew, 1, heir=4, life=1)
    crew.wait_until_all_mix()
    crew.enough()
    results = crew.results()
    assert sorted(results) == [0, 3]
    finish(plan, results, joins=2)
    assert sum(isinstance(event, Join) for event in records(plan)[1]) == 1


def test_one_that_loses_its_connections_goes_on_for_the_other(
    tmp_path: Path, crews: list[Crew]
) -> None:
    """Both run, and both have lost each other: it is the other one that ends, and comes again."""
    plan = Plan(tmp_path, learners=4, size=2, steps=10**6, pause=0.1, reduces=True)
    crew = Crew(plan)
    crews.append(crew)
    for rank in range(4):
        crew.start(rank)
    crew.under_way(60)
    lives = leave_alone(crew, 0, lambda crew, rank: lose_connections(crew, rank - 1))
    crew.wait_until_all_mix()
    make_whole(crew, 0, lives + 1)
    crew.enough()
    results = crew.results()
    assert sorted(results) == list(range(4))
    finish(plan, results, joins=lives)


def finish(plan: Plan, results: dict[int, Done], *, joins: int) -> None:
    """Records fit, count mixes on both sides, and replay to the same bits."""
    nodes = of_nodes(plan, results)
    check(plan, nodes)
    check_bits(nodes, replayed(plan)[0])
    assert sum(isinstance(event, Join) for event in records(plan)[0]) == joins
