"""Members of super-learners killed: the first member goes on for all of them, others help it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from crew_learner import DOOMS, LOSE_CONNECTIONS, PATIENCE, Plan, file_of
from crews import Crew, check, check_bits, of_nodes, records, replayed
from engine_task import make_model

from hadpsgd.decentralized import assembly
from hadpsgd.decentralized.core.events import Join
from hadpsgd.decentralized.core.place import Place
from hadpsgd.decentralized.core.sgd import Sgd
from hadpsgd.decentralized.elastic.decision import Decision, Report
from hadpsgd.decentralized.elastic.members import MemberExchange, TornError
from hadpsgd.decentralized.network.rendezvous import Meeting
from hadpsgd.decentralized.strategies import registry as strategies
from hadpsgd.decentralized.topology.schedules import create
from hadpsgd.errors import UserError


@pytest.fixture
def crews() -> Iterator[list[Crew]]:
    """Crews that a test hires are dismissed at its end."""
    hired: list[Crew] = []
    yield hired
    for crew in hired:
        crew.close()


def leave_alone(
    crew: Crew, node: int, strike: Callable[[Crew, int], object], *, lives: int = 0
) -> int:
    """Strike the last member until the first one goes on; how many lives there were before.

    Struck within a round that a partner counts, or while the members put one together that was
    broken off, the first one ends, too, and both come again.
    """
    members = crew.plan.members(node)
    for life in range(lives + 1, lives + 9):
        strike(crew, members[-1])
        crew.wait([members[-1]])
        assert crew.done.pop(members[-1]).error
        file = file_of(crew.plan, node)
        grown = file.stat().st_size + 30
        deadline = time.monotonic() + PATIENCE
        while members[0] in crew.running and file.stat().st_size < grown:
            assert time.monotonic() < deadline, "the first member stands still"
            crew.reap([members[0]])
            time.sleep(0.01)
        if members[0] in crew.running:
            return life - 1
        error = crew.done.pop(members[0]).error
        assert "TornError" in error or f"rank {members[0]} lost ranks" in error
        crew.wait(list(members[1:-1]))
        for rank in members[1:-1]:
            assert "first member of the super-learner" in crew.done.pop(rank).error
        for rank in members:
            crew.start(rank, join=life)
        crew.wait_until_all_mix()
    pytest.fail("no first member goes on alone")


def helped(plan: Plan, rank: int, gradients: int) -> list[tuple[int, int]]:
    """(member, step) of the gradients that a rank took for its first member, so many at least."""
    file, deadline = plan.folder / f"helped-{rank}", time.monotonic() + PATIENCE
    while not file.exists() or file.read_text().count("\n") < gradients:
        assert time.monotonic() < deadline, f"rank {rank} does not help"
        time.sleep(0.01)
    return [(int(a), int(b)) for a, b in map(str.split, file.read_text().splitlines())]


def lose_connections(crew: Crew, rank: int) -> None:
    os.kill(crew.running[rank].pid, LOSE_CONNECTIONS)


def test_the_first_member_goes_on_for_all(tmp_path: Path, crews: list[Crew]) -> None:
    """Its updates are those that they would have made together, bit for bit."""
    plan = Plan(tmp_path, learners=4, size=2, steps=10**6, pause=0.02, reduces=True)
    crew = Crew(plan)
    crews.append(crew)
    for rank in range(4):
        crew.start(rank)
    crew.under_way(60)
    lives = leave_alone(crew, 0, Crew.kill)
    crew.wait_until_all_mix()
    crew.enough()
    results = crew.results()
    assert sorted(results) == [0, 2, 3]
    nodes = of_nodes(plan, results)
    assert all(done.alive == (0, 1) for done in nodes.values())
    check(plan, nodes)
    check_bits(nodes, replayed(plan)[0])
    assert sum(isinstance(event, Join) for event in records(plan)[0]) == lives


def test_reduced_super_learners_mix_give_die_and_are_whole_again(
    tmp_path: Path, crews: list[Crew]
) -> None:
    """One loses its connections, one is killed: both first members go on, mix with each other, and
    what takes the place of one gets its weights from the other.
    """
    plan = Plan(tmp_path, learners=4, size=2, steps=10**6, pause=0.02, pause_every=9, reduces=True)
    crew = Crew(plan)
    crews.append(crew)
    for rank in range(4):
        crew.start(rank)
    crew.under_way(60)
    lives = [leave_alone(crew, 0, lose_connections), leave_alone(crew, 1, Crew.kill)]
    crew.wait_until_all_mix()
    for node in (1, 0):
        crew.kill(2 * node)
        lives[node] += 1
        for rank in plan.members(node):
            crew.start(rank, join=lives[node])
        crew.wait_until_all_mix()
    crew.enough()
    results = crew.results()
    assert sorted(results) == [0, 1, 2, 3]
    nodes = of_nodes(plan, results)
    check(plan, nodes)
    check_bits(nodes, replayed(plan)[0])
    joins = {n: sum(isinstance(e, Join) for e in found) for n, found in records(plan).items()}
    assert joins == {0: lives[0], 1: lives[1]}


def test_of_three_the_second_helps_the_first_until_the_end_and_without_it_all_end(
    tmp_path: Path, crews: list[Crew]
) -> None:
    plan = Plan(tmp_path, learners=6, size=3, steps=10**6, pause=0.02, reduces=True)
    crew = Crew(plan)
    crews.append(crew)
    for rank in range(6):
        crew.start(rank)
    crew.under_way(60)
    crew.kill(3)
    crew.wait([4, 5])
    assert all(crew.done.pop(rank).error for rank in (3, 4, 5))
    crew.wait_until_all_mix()
    leave_alone(crew, 0, Crew.kill)
    assert {member for member, _ in helped(plan, 1, 5)} == {1, 2}
    crew.enough()
    results = crew.results()
    nodes = of_nodes(plan, results)
    assert nodes[0].alive == (0,) and not results.keys() - {0} and 1 in crew.done
    check(plan, nodes)
    check_bits(nodes, replayed(plan)[0])


@pytest.mark.parametrize("doom", DOOMS)
def test_a_member_dies_in_mid_exchange(
    doom: dict[str, Any], tmp_path: Path, crews: list[Crew]
) -> None:
    """What is broken off counts on both sides or on none, or the first member ends, too."""
    plan = Plan(tmp_path, learners=8, size=2, steps=60, reduces=True)
    crew = Crew(plan)
    crews.append(crew)
    for rank in range(8):
        crew.start(rank, replace(plan, **doom) if rank == 3 else plan)
    crew.wait(list(range(8)))
    assert crew.done[3].code == -signal.SIGKILL
    results = {rank: o.value for rank, o in crew.done.items() if o.value is not None}
    assert {0, 1, 4, 5, 6, 7} <= results.keys()
    assert 2 in results or "partners count" in crew.done[2].error
    nodes = of_nodes(plan, results)
    check(plan, nodes)
    check_bits(nodes, replayed(plan)[0])


RING = create("ring", learners=2, seed=0)
HELD = Report(round=5, exchanging=True, holds=(1,))
BEGUN = Report(round=5, exchanging=True, holds=(0,))
MADE = Report(round=6)


def without_rank_1(first: Report, *others: Report) -> Decision:
    """Two super-learners of two; of the first one rank 1 has died."""
    reports = dict(zip((0, 2, 3), (first, *others), strict=True))
    return Decision(1, (0, 1), 6, reports=reports, size=2, reduced=(0,), shrunk=(0,))


def test_what_was_under_way_counts_on_both_sides_or_on_none() -> None:
    nobody = without_rank_1(HELD, BEGUN, BEGUN)
    assert [nobody.settled(rank) for rank in (0, 2, 3)] == [[], [], []]
    first_has = without_rank_1(MADE, BEGUN, BEGUN)
    assert [first_has.settled(rank) for rank in (2, 3)] == [[0], [0]]


def test_who_lacks_what_a_partner_counts_leaves() -> None:
    """Rank 3 has mixed it in, so rank 2 must; rank 0 lacks the shard that came to rank 1."""
    torn = without_rank_1(HELD, BEGUN, MADE)
    assert torn.settled(2) == [0] and torn.settled(0) == []
    exchange = MemberExchange.__new__(MemberExchange)
    exchange.place, exchange.schedule = Place(rank=0, world=4, size=2), RING
    exchange.links = SimpleNamespace(reset=lambda _: None)  # type: ignore[assignment]
    exchange._broken = 5
    for decision, leaves in ((torn, True), (without_rank_1(HELD, BEGUN, BEGUN), False)):
        exchange._mixing = True
        with pytest.raises(TornError) if leaves else nullcontext():
            assert not exchange.settle(decision)


def test_who_is_whole_again_gives_by_its_first_member() -> None:
    """The other one takes part with the same change that lets a newcomer in: it has no weights."""
    decision = Decision(2, (0, 1), 6, sources={0: 1}, size=2, restored=(1,))
    exchange = MemberExchange.__new__(MemberExchange)
    exchange.membership = SimpleNamespace(reduced=())  # type: ignore[assignment]
    exchange.place = Place(rank=1, world=4, size=2)
    exchange.learner = SimpleNamespace(weights=torch.zeros(4))  # type: ignore[assignment]
    assert exchange._giver(decision, 1) == 2
    assert exchange._giver(Decision(2, (0, 1), 6, sources={0: 1}, size=2), 1) == 3
    exchange.place = Place(rank=2, world=4, size=2)
    assert [*exchange._receivers(decision, 0)] == [0, 1]


def test_weights_that_are_rounded_are_refused() -> None:
    place = Place(rank=0, world=4, size=2)
    meeting = Meeting(place=place, local_world=4, host="", store=None, timeout=timedelta(1))
    choice = strategies.Choice(strategy="adpsgd", wire="bfloat16")
    model = make_model(torch.float64)
    with pytest.raises(UserError, match="cannot go on alone"):
        assembly.build(model, Sgd(), strategies.create(choice), "ring", meeting, reduces=True)


def test_one_that_is_alone_already_settles_with_who_lives() -> None:
    """Of three the first is alone since long; the second dies while the others exchange."""
    first, third = (Report(round=5, exchanging=True, holds=(other,)) for other in (2, 0))
    reports = {0: first, 4: third, 5: third}
    decision = Decision(2, (0, 2), 6, reports=reports, size=2, reduced=(0,))
    assert decision.settled(0) == [2] and decision.settled(4) == [0]
    exchange = MemberExchange.__new__(MemberExchange)
    exchange.place = Place(rank=0, world=6, size=2)
    exchange.schedule = create("ring", learners=3, seed=0)
    exchange.links = SimpleNamespace(  # type: ignore[assignment]
        reset=lambda _: None, interrupted=lambda: False
    )
    exchange.membership = SimpleNamespace(reduced=(0,))  # type: ignore[assignment]
    took: list[object] = []
    exchange._take = lambda came, _: took.append(came)  # type: ignore[method-assign,assignment]
    exchange._broken, exchange._mixing = 5, True
    exchange._came = {1: "lost", 2: "came"}  # type: ignore[dict-item]
    assert exchange.settle(decision)
    assert took == [{2: "came"}] and not exchange._gatherers
