"""A member of a super-learner dies in the middle of a message: the others hear of it at once."""

from __future__ import annotations

import os
import signal
import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from processes import collect, launch

from hadpsgd.decentralized.core.engine import LostMemberError
from hadpsgd.decentralized.core.place import Place
from hadpsgd.decentralized.network import sockets
from hadpsgd.decentralized.network.collectives import Group
from hadpsgd.decentralized.network.collectives import wait as wait_for
from hadpsgd.decentralized.network.rendezvous import Meeting, process_group
from hadpsgd.decentralized.network.waiting import LOOK_SECONDS, LOST

LONG = timedelta(minutes=20)
"""A wait that lasts so long hangs, as far as this test goes."""
LARGE = 2**23
"""Numbers: no socket holds such a message."""
WAYS = ("received", "sent")


def dies_half_way(rank: int, way: str, vital: bool = False) -> str:
    """What member 0 hears of member 1, which is killed when a message has begun to arrive."""
    port = int(os.environ["MASTER_PORT"])
    store = dist.TCPStore("127.0.0.1", port, is_master=rank == 0, wait_for_workers=False)
    store.set(f"pid/{rank}", str(os.getpid()))
    meeting = Meeting(
        place=Place(rank=rank, world=2, size=2),
        local_world=2,
        host="127.0.0.1",
        store=store,
        timeout=LONG,
    )
    connections = process_group("members", meeting, rank=rank, size=2)
    group = Group(dist.group.WORLD, connections=connections, vital=vital)
    victim, receives = int(store.get("pid/1")), (rank == 0) == (way == "received")
    message = torch.full([2, LARGE], 0.0 if receives else 1.0)

    def kill() -> None:
        while not message[1 - rank, 0]:
            time.sleep(0.001)
        os.kill(victim, signal.SIGKILL)

    if receives:
        threading.Thread(target=kill, daemon=True).start()
    try:
        for _ in range(2):
            wait_for(group._receive(message, 1) if receives else group._send(message, 1))
    except LostMemberError as lost:
        group.abandon()
        return str(lost)
    return "all came"


@pytest.mark.parametrize("way", WAYS)
def test_who_dies_in_mid_message_is_not_waited_for(way: str) -> None:
    """gloo forgets the half of a message, and would wait for the rest of it."""
    outcomes = collect(launch(2, dies_half_way, way), 60)
    assert outcomes[1].code == -signal.SIGKILL
    assert not outcomes[0].error
    assert outcomes[0].value != "all came"


@pytest.mark.parametrize("way", WAYS)
def test_who_cannot_go_on_without_it_ends(way: str) -> None:
    """It cannot be called back from gloo's wait; the launcher sees it end, and replaces it.

    Where the dead one's kernel refuses what it had not read, gloo may be told so, and say it first.
    """
    outcomes = collect(launch(2, dies_half_way, way, True), 60)
    assert outcomes[1].code == -signal.SIGKILL
    assert outcomes[0].code == LOST or "Connection" in outcomes[0].value


def takes_its_time(rank: int) -> str:
    """Member 0 waits for member 1, which is slow, then for nothing."""
    port = int(os.environ["MASTER_PORT"])
    store = dist.TCPStore("127.0.0.1", port, is_master=rank == 0, wait_for_workers=False)
    place = Place(rank=rank, world=2, size=2)
    meeting = Meeting(place=place, local_world=2, host="127.0.0.1", store=store, timeout=LONG)
    connections = process_group("members", meeting, rank=rank, size=2)
    group = Group(dist.group.WORLD, connections=connections, vital=True)
    if rank:
        time.sleep(4 * LOOK_SECONDS)
        wait_for(group._send(torch.ones([2, 4]), 1))
        store.wait(["had"])
        group.waiter = None
        sockets.shut_down(connections)
        store.set("shut", "")
    else:
        wait_for(group._receive(torch.zeros([2, 4]), 1))
        store.set("had", "")
        store.wait(["shut"])
        time.sleep(4 * LOOK_SECONDS)  # nothing is waited for: that nobody is there is no matter
    return "here"


def test_who_is_only_slow_is_waited_for() -> None:
    outcomes = collect(launch(2, takes_its_time), 60)
    assert [outcomes[rank].value for rank in range(2)] == ["here", "here"]
