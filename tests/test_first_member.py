"""First members of super-learners killed: another one takes the place, the others help it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch.distributed as dist
from crews import PATIENCE, Crew, Done, Plan, check, check_bits, of_nodes, records, replayed
from test_members_alone import crews, helped
from test_reunion import make_whole, updates

from hadpsgd.decentralized.core.events import Join
from hadpsgd.decentralized.network import rendezvous

__all__ = ["crews"]


def first_dies(crew: Crew, node: int, *, heir: int, life: int) -> None:
    """Kill it; another member, which has its rank from now on, takes its place."""
    first = crew.plan.members(node)[0]
    store = rendezvous.of_attempt(dist.TCPStore("127.0.0.1", crew.port, is_master=False), "0")
    crew.kill(first)
    assert crew.done.pop(first).error == "died"
    before = updates(crew.plan, node)
    store.set(f"heir/{node}", f"{heir} {life}")
    crew.running[first] = crew.running.pop(heir)
    deadline = time.monotonic() + PATIENCE
    while updates(crew.plan, node) < before + 5:
        assert time.monotonic() < deadline, crew.ended()
        time.sleep(0.02)


@pytest.mark.parametrize("size", [2, 3])
def test_the_second_takes_the_place_of_the_first(
    size: int, tmp_path: Path, crews: list[Crew]
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
    first_dies(crew, 0, heir=1, life=1)
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


def finish(plan: Plan, results: dict[int, Done], *, joins: int) -> None:
    """Records fit, count mixes on both sides, and replay to the same bits."""
    nodes = of_nodes(plan, results)
    check(plan, nodes)
    check_bits(nodes, replayed(plan)[0])
    assert sum(isinstance(event, Join) for event in records(plan)[0]) == joins
