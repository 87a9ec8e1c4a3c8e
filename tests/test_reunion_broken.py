"""A process dies while a reunion's collective is under way: nobody waits for the rest of it."""

from __future__ import annotations

import os
import signal
import threading
import time
from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from processes import collect, launch
from torch import nn

from hadpsgd.decentralized.core.buffers import flatten
from hadpsgd.decentralized.core.engine import LostMemberError
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.place import Place
from hadpsgd.decentralized.core.sgd import Sgd
from hadpsgd.decentralized.elastic.reunion import Reunion, group_name
from hadpsgd.decentralized.network.collectives import Group
from hadpsgd.decentralized.network.rendezvous import Meeting, process_group

LONG = timedelta(minutes=20)
"""A wait that lasts so long hangs, as far as this test goes."""


def reunion_of(rank: int) -> Reunion:
    """Of a super-learner of two with a model that no socket holds; weights of 1, new ones of 0."""
    port = int(os.environ["MASTER_PORT"])
    meeting = Meeting(
        place=Place(rank=rank, world=2, size=2),
        local_world=2,
        host="127.0.0.1",
        store=dist.TCPStore("127.0.0.1", port, is_master=rank == 0, wait_for_workers=False),
        timeout=LONG,
        life=1 if rank else 0,
    )
    model = nn.Linear(4096, 2048, bias=False)
    nn.init.constant_(model.weight, 1.0 - rank)
    learner = Learner(flatten(model, shards=2), Sgd(momentum=0.9))
    group = Group(None, size=2)
    if rank:
        made = process_group(group_name(0, life=1), meeting, rank=1, size=2)
        group.renew(dist.group.WORLD, made)
    mixer = SimpleNamespace(
        exchange=SimpleNamespace(membership=SimpleNamespace(epoch=1)),
        rests=0,
        reunite=lambda: True,
        go_alone=lambda _: group.abandon(),
    )
    return Reunion(meeting, learner, mixer, group)  # type: ignore[arg-type]


def breaks_off(rank: int, victim: int) -> str:
    """What is left of a reunion after the victim was killed in the middle of the weights."""
    reunion = reunion_of(rank)
    store, weights = reunion.meeting.store, reunion.learner.weights
    assert store is not None
    if rank == 0:
        store.set("pid", str(os.getpid()))
        return "whole" if reunion.let_in(1) else "alone"
    struck = int(store.get("pid")) if victim == 0 else os.getpid()

    def kill() -> None:
        while not weights[0]:
            time.sleep(0.0005)
        os.kill(struck, signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    try:
        reunion.come_back()
    except (LostMemberError, torch.distributed.DistError):
        return "lost"
    return "whole"


@pytest.mark.parametrize(("victim", "left"), [(0, "lost"), (1, "alone")])
def test_who_is_left_hears_of_it(victim: int, left: str) -> None:
    """gloo would wait for the other half of the weights for as long as all have to come."""
    outcomes = collect(launch(2, breaks_off, victim), 30)
    assert outcomes[victim].code == -signal.SIGKILL
    assert not outcomes[1 - victim].error
    assert outcomes[1 - victim].value == left
