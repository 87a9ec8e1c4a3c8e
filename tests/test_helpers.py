"""Super-learners of three and more lose members: those that are left help the first one."""

from __future__ import annotations

import json
import socket
import struct
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from crew_learner import Plan
from crews import Crew, check, check_bits, of_nodes, records, replayed
from many_open import many_open
from test_members_alone import crews, helped, leave_alone, lose_connections
from test_reunion import make_whole, updates

from hadpsgd.decentralized.core.buffers import flatten
from hadpsgd.decentralized.core.events import Join
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.place import Place
from hadpsgd.decentralized.core.sgd import Sgd
from hadpsgd.decentralized.elastic.helpers import Helpers, shared_out
from hadpsgd.decentralized.network.rendezvous import Meeting

__all__ = ["crews"]


def frame(told: bytes) -> bytes:
    """As a word goes over a socket."""
    return struct.pack("!I", len(told)) + told


def start(plan: Plan, crews: list[Crew]) -> Crew:
    """All, under way."""
    crew = Crew(plan)
    crews.append(crew)
    for rank in range(plan.learners):
        crew.start(rank)
    crew.under_way(60)
    return crew


def finish(crew: Crew, *, joins: int) -> None:
    """All that run come to the end; weights, momentum and records are as ever."""
    plan = crew.plan
    running = sorted(crew.running)
    crew.enough()
    results = crew.results()
    assert sorted(results) == running
    nodes = of_nodes(plan, results)
    check(plan, nodes)
    check_bits(nodes, replayed(plan)[0])
    assert sum(isinstance(event, Join) for event in records(plan)[0]) == joins


def takes(plan: Plan, shares: dict[int, set[int]]) -> None:
    """Wait until ranks take the gradients of these members: all have noticed who is there."""
    for rank, members in shares.items():
        found = helped(plan, rank, 6)
        while {member for member, _ in found[-6:]} != members:
            found = helped(plan, rank, len(found) + 1)


@pytest.mark.parametrize(
    ("size", "there", "shares"),
    [
        (3, [0, 2], {0: [0], 2: [2, 1]}),
        (4, [0, 1, 2], {0: [0], 1: [1], 2: [2, 3]}),
        (4, [0, 3], {0: [0, 2], 3: [3, 1]}),
        (3, [0], {0: [0, 1, 2]}),
    ],
)
def test_each_minibatch_is_somebodys(
    size: int, there: list[int], shares: dict[int, list[int]]
) -> None:
    assert shared_out(size, there) == shares


def test_of_four_the_last_dies_and_the_second_and_both_are_replaced(
    tmp_path: Path, crews: list[Crew]
) -> None:
    """Each update is the mean over all members' minibatches, bit for bit, whoever is there."""
    plan = Plan(tmp_path, learners=8, size=4, steps=10**6, pause=0.1, reduces=True)
    crew = start(plan, crews)
    lives = leave_alone(crew, 0, Crew.kill)
    takes(plan, {1: {1}, 2: {2, 3}})
    crew.kill(1)
    assert crew.done.pop(1).error == "died"
    takes(plan, {2: {1, 2}})
    make_whole(crew, 0, lives + 1)
    finish(crew, joins=lives)


def test_the_others_wait_with_the_first_one(tmp_path: Path, crews: list[Crew]) -> None:
    plan = Plan(tmp_path, learners=6, size=3, steps=10**6, pause=0.1, reduces=True, waits=True)
    crew = start(replace(plan, pause_every=9), crews)
    lives = leave_alone(crew, 0, Crew.kill)
    before = updates(plan, 0)
    crew.wait_until_all_mix()
    assert updates(plan, 0) == before and not (tmp_path / "helped-1").exists()
    make_whole(crew, 0, lives + 1)
    while updates(plan, 0) < before + 5:
        crew.wait_until_all_mix()
    finish(crew, joins=lives)


def test_who_is_lost_to_the_others_but_lives_is_let_go(tmp_path: Path, crews: list[Crew]) -> None:
    """All others help at first, and nobody would ever take the places of nobody."""
    plan = Plan(tmp_path, learners=6, size=3, steps=10**6, pause=0.1, reduces=True)
    crew = start(plan, crews)
    lives = leave_alone(crew, 0, lose_connections)
    crew.wait([1])
    assert "LostMemberError" in crew.done.pop(1).error
    make_whole(crew, 0, lives + 1)
    finish(crew, joins=lives)


@pytest.mark.parametrize(
    "words",
    [
        b"GET / HTTP/1.1\r\n\r\n" + b"x" * 2**17,
        frame(b"[1]"),
        frame(b'"member"'),
        frame(b"[" * 60_000),
        frame(b"\xff\xfe"),
        frame(b'{"member": [1]}'),
        frame(b'{"member": 0}'),
        frame(b'{"member": 3}'),
        frame(b'{"member": null}'),
        frame(b'{"members": 1}'),
        b"",
    ],
    ids=lambda words: repr(words[:20]),
)
def test_strangers_at_the_door_are_no_helpers(words: bytes) -> None:
    """Whoever connects to the first member and says something else is let go; helpers come in."""
    meeting = Meeting(
        place=Place(rank=0, world=3, size=3),
        local_world=3,
        host="127.0.0.1",
        store=dist.HashStore(),
        timeout=timedelta(seconds=30),
    )
    flat = flatten(torch.nn.Linear(2, 1))
    helpers = Helpers(meeting, Learner(flat, Sgd()))
    helpers.open(0)
    address = tuple(json.loads(meeting.prefixed("helping").get("0/0")))
    try:
        with socket.create_connection(address) as stranger:
            stranger.sendall(words)
            stranger.shutdown(socket.SHUT_WR)
            assert helpers.look() == set()
        with many_open(), socket.create_connection(address) as helper:
            helper.sendall(frame(b'{"member": 2}'))
            assert helpers.look() == {2}
            assert helpers.look() == {2}
            with socket.create_connection(address) as again:
                again.sendall(frame(b'{"member": 2}'))
                assert helpers.look() == {2}
        assert helpers.look() == set()
    finally:
        helpers.close(finished=True)
