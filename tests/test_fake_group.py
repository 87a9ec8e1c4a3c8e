"""One of 128 ranks in a process group that sends nothing: what it would send, to whom, in order.

torch's fake group takes every call and moves no data; tensors claim to be on a GPU. (Those of
torch's FakeTensorMode cannot be cut into shards where torch was built without CUDA.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.testing._internal.distributed.fake_pg import FakeStore

from hadpsgd.decentralized.core.buffers import ALIGN, flatten
from hadpsgd.decentralized.network.averaging import Averaging
from hadpsgd.decentralized.network.collectives import Group
from hadpsgd.decentralized.network.near import Neighbours
from hadpsgd.decentralized.network.reducer import Reducer

WORLD, RANK = 128, 77


class OnGpu(Tensor):
    """Says so, as does what is made of it."""

    is_cuda = True


@dataclass
class Calls:
    """What was asked of torch."""

    sent: list[tuple[int, int, int]] = field(default_factory=list)
    """Tag, rank, bytes."""
    received: list[tuple[int, int, int]] = field(default_factory=list)
    collectives: list[tuple[str, int, int]] = field(default_factory=list)
    """Name, numbers out and in."""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    """In a group of 128."""
    made = Calls()
    dist.init_process_group("fake", store=FakeStore(), rank=RANK, world_size=WORLD)
    isend, irecv = dist.isend, dist.irecv
    scatter, gather = dist.all_to_all_single, dist.all_gather_single

    def send(tensor, *, group, group_dst, tag):  # type: ignore[no-untyped-def]
        made.sent.append((tag, group_dst, tensor.nbytes))
        return isend(tensor, group=group, group_dst=group_dst, tag=tag)

    def receive(tensor, *, group, group_src, tag):  # type: ignore[no-untyped-def]
        made.received.append((tag, group_src, tensor.nbytes))
        return irecv(tensor, group=group, group_src=group_src, tag=tag)

    def counted(name, call):  # type: ignore[no-untyped-def]
        def run(out, given, **options):  # type: ignore[no-untyped-def]
            made.collectives.append((name, out.numel(), given.numel()))
            return call(out, given, **options)

        return run

    monkeypatch.setattr(dist, "isend", send)
    monkeypatch.setattr(dist, "irecv", receive)
    monkeypatch.setattr(dist, "all_to_all_single", counted("scatter", scatter))
    monkeypatch.setattr(dist, "all_gather_single", counted("gather", gather))
    yield made
    dist.destroy_process_group()


@pytest.mark.parametrize("apart", [False, True])
def test_gradients_of_128_learners(
    calls: Calls, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rank is sent to and heard of once a piece and half of the average; none is itself."""
    monkeypatch.setattr(Neighbours, "signals", lambda _: None)  # as of containers apart
    model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(8)))
    flat = flatten(model, shards=WORLD)
    group = Group(dist.group.WORLD, apart=apart)
    reducer = Reducer(flat, group)
    model(torch.randn(2, 512)).sum().backward()
    early = len(calls.sent)
    reducer.finish()
    assert bool(early) == apart, "pieces leave during backward, where links are slow"
    whole = flat.with_control.nbytes
    assert sum(size for _, _, size in calls.sent) == 2 * whole * (WORLD - 1) // WORLD
    assert group.bytes_sent == sum(size for _, _, size in calls.sent)
    assert Counter(calls.sent) == Counter(calls.received)
    others = [(RANK + far) % WORLD for far in range(1, WORLD)]
    by_tag: dict[int, list[int]] = {}
    for tag, rank, _ in calls.sent:
        by_tag.setdefault(tag, []).append(rank)
    assert len(by_tag) >= (2 * 4 if apart else 2)
    assert all(ranks == others for ranks in by_tag.values()), "nobody is everybody's first"


def test_averages_on_128_gpus(calls: Calls) -> None:
    """By two collectives of the device's own backend, shard by shard; no message by the host."""
    numbers = 5 * ALIGN * WORLD
    average = Averaging(Group(dist.group.WORLD), torch.ones(numbers).as_subclass(OnGpu))
    average.run()
    assert [row.shape for row in average.rows()] == WORLD * [(numbers // WORLD,)]
    shard = numbers // WORLD
    assert calls.collectives == [("scatter", numbers, numbers), ("gather", numbers, shard)]
    assert not calls.sent and not calls.received
    assert average.group.bytes_sent == 2 * 4 * shard * (WORLD - 1)


def test_averages_of_gpus_by_the_host(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    """A communication thread beside NCCL: messages, whose tensors are in the host's memory."""
    empty_like = torch.empty_like
    pinned: list[bool] = []

    def unpinned(tensor, *, device=None, pin_memory=False):  # type: ignore[no-untyped-def]
        pinned.append(pin_memory)
        made = empty_like(tensor, device=device)
        return made.as_subclass(Tensor) if device == "cpu" else made

    monkeypatch.setattr(torch, "empty_like", unpinned)  # to pin needs a driver
    buffer = torch.ones(ALIGN * WORLD).as_subclass(OnGpu)
    average = Averaging(Group(dist.group.WORLD, by_host=True), buffer)
    average.run()
    assert not any(row.is_cuda for row in average.rows())
    assert pinned == [True, False, False], "one copy, and what is summed"
    assert not calls.collectives
    assert len(calls.sent) == len(calls.received) == 2 * (WORLD - 1)
