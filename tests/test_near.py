"""Averages in memory that ranks of a host share: same bits as messages, and no rank waits for a
dead one."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from engine_task import leave_together
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from processes import collect, launch, run

from hadpsgd.decentralized.core.engine import LostMemberError
from hadpsgd.decentralized.network import near, rendezvous
from hadpsgd.decentralized.network.averaging import Averaging
from hadpsgd.decentralized.network.collectives import Group
from hadpsgd.decentralized.network.near import Neighbours
from hadpsgd.decentralized.network.segment import Segment, mapped
from hadpsgd.decentralized.network.signals import Pipes, Signals, opened


def group_of(rank: int, size: int, *, seconds: float = 60.0) -> tuple[rendezvous.Meeting, Group]:
    """All of some processes."""
    meeting = rendezvous.meet(learners=size, size=size, agree_on="same", seconds=20)
    rendezvous.process_group("all", meeting, rank=rank, size=size)
    return meeting, Group(dist.group.WORLD, seconds=seconds)


def averages(rank: int, size: int, cells: int, rounds: int, near_by: bool) -> list[torch.Tensor]:
    """Of three buffers that are under way together, of several types; ranks are late at random."""
    meeting, group = group_of(rank, size)
    neighbours = Neighbours(group) if near_by else None
    types = (torch.float32, torch.float64, torch.bfloat16)
    buffers = [torch.zeros(size * cells, dtype=dtype) for dtype in types]
    every = [Averaging(group, buffer, neighbours) for buffer in buffers]
    random, late = torch.Generator().manual_seed(rank), torch.Generator().manual_seed(99 + rank)
    found = []
    for _ in range(rounds):
        for buffer in buffers:
            buffer.copy_(torch.randn(buffer.shape, generator=random))
        for part in (Averaging.start, Averaging.spread, Averaging.wait):
            for average in every:
                if torch.rand((), generator=late) < 0.2:
                    time.sleep(0.002)
                part(average)
        found += [buffer.clone() for buffer in buffers]
    if near_by:
        assert neighbours is not None and neighbours.signals() is not None
    leave_together(meeting)
    return [*found, torch.tensor(group.bytes_sent)]


@given(size=st.integers(2, 5), cells=st.integers(1, 3000))
@settings(max_examples=4, deadline=None, phases=[Phase.generate])  # to shrink takes minutes
def test_memory_gives_the_bits_of_messages(size: int, cells: int) -> None:
    rounds = 25
    by_memory = run(size, averages, size, cells, rounds, True)
    by_messages = run(size, averages, size, cells, rounds, False)
    for one, other in zip(by_memory, by_messages, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    randoms = [torch.Generator().manual_seed(rank) for rank in range(size)]
    for step in range(rounds):
        drawn = [[torch.randn(size * cells, generator=r) for _ in range(3)] for r in randoms]
        mean = torch.stack([each[1].double() for each in drawn]).mean(0)
        torch.testing.assert_close(by_memory[0][3 * step + 1], mean, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("lacks", ["Segment", "Pipes", "mapped", "opened"])
def test_where_one_rank_cannot_all_go_by_messages(lacks: str) -> None:
    """One has no such memory, no more files, or does not see the others' (a container)."""
    assert run(3, without, lacks) == [True] * 3


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def without(rank: int, lacks: str) -> bool:
    def fails(*_: object, **__: object) -> None:
        raise OSError("none here")

    if rank == 1:
        setattr(near, lacks, fails)
    before = open_files()
    meeting, group = group_of(rank, 3)
    connected = open_files()
    buffer = torch.full((6,), float(rank))
    neighbours = Neighbours(group)
    average = Averaging(group, buffer, neighbours)
    for _ in range(3):
        average.run()
    signals = neighbours.signals()
    leave_together(meeting)
    assert before < connected
    if lacks in ("Pipes", "opened"):
        assert signals is None
        assert open_files() <= connected  # nothing is left open
    return bool((buffer == 1.0).all())


def loses(rank: int, how: str, said: str) -> None:
    """Rank 2 is lost in the middle of an average; what the others say of it."""
    _, group = group_of(rank, 3, seconds=2.0)
    buffer = torch.full((6,), float(rank))
    average = Averaging(group, buffer, Neighbours(group))
    average.run()
    average.start()
    if rank == 2:
        if how == "leaves":
            group.abandon()
            time.sleep(8)
        os.kill(os.getpid(), {"dies": signal.SIGKILL}.get(how, signal.SIGSTOP))
    with pytest.raises(LostMemberError, match=f"rank 2 of the group {said}"):
        average.spread()
        average.wait()
    time.sleep(1.0)  # of two that are left, the other's end is not taken for the third one's


@pytest.mark.parametrize(
    ("how", "said"), [("dies", "is gone"), ("leaves", "is gone"), ("stops", "was silent for 2 s")]
)
def test_who_is_lost_is_not_waited_for(how: str, said: str) -> None:
    started = launch(3, loses, how, said)
    outcomes = collect({rank: started[rank] for rank in (0, 1)}, 30)
    os.kill(started[2].pid, signal.SIGCONT)
    started[2].kill()
    for outcome in outcomes.values():
        assert not outcome.error, outcome.error


def test_a_silence_ends_when_the_group_has_come_apart() -> None:
    """Its pipes are there: a rank that lost its connections holds them."""
    pipes = Pipes([1])
    end = opened(pipes.offer(1))
    pipes.withdraw()
    asked = iter(range(100))
    signals = Signals(pipes.incoming, {}, seconds=60, broken=lambda: next(asked) >= 0)
    os.write(end, b"\x07\x00" * 2)
    signals.hear(7)
    signals.hear(7)
    assert next(asked) == 0  # nobody has
    with pytest.raises(LostMemberError, match="a connection of the group ended, rank 1"):
        signals.hear(7)
    assert next(asked) == 2
    signals.close()
    os.close(end)


def test_who_has_left_takes_nothing_for_told() -> None:
    """A member goes on alone while gradients are under way: what is in memory is no mean."""
    pipes = Pipes([1])
    end = opened(pipes.offer(1))
    pipes.withdraw()
    signals = Signals(pipes.incoming, {}, seconds=60)
    os.write(end, b"\x07\x00")
    signals.close()
    os.close(end)
    with pytest.raises(LostMemberError, match="this rank has left its group"):
        signals.hear(7)


def test_another_process_memory_is_known_by_its_number() -> None:
    segment = Segment(4096)
    try:
        process, descriptor, number = segment.description
        segment.memory[:2] = b"ab"
        other = mapped((process, descriptor, number), nbytes=4096)
        assert other[:2] == b"ab"
        other[0:1] = b"c"
        assert segment.memory[:2] == b"cb"
        for wrong in (
            (process, descriptor, number + 1),
            (process, 0, number),
            (process, 10**6, number),
            (2**22 + 1, descriptor, number),
        ):
            with pytest.raises(OSError):
                mapped(wrong, nbytes=4096)
        with pytest.raises(OSError):  # less than is said
            mapped((process, descriptor, number), nbytes=8192)
    finally:
        segment.close()
    with pytest.raises(OSError):
        mapped((process, descriptor, number), nbytes=4096)
    assert segment.memory[:2] == b"cb"


def test_another_process_pipe_is_known_by_its_number() -> None:
    pipes = Pipes([3])
    process, descriptor, file = pipes.offer(3)
    for wrong in (
        (process, descriptor, file + 1),
        (process, 0, file),
        (2**22 + 1, descriptor, file),
    ):
        with pytest.raises(OSError):
            opened(wrong)
    end = opened((process, descriptor, file))
    pipes.withdraw()
    os.write(end, b"ab")
    os.close(end)
    assert os.read(pipes.incoming[3], 8) == b"ab"
    assert os.read(pipes.incoming[3], 8) == b""
    with pytest.raises(OSError):
        opened((process, descriptor, file))
    os.close(pipes.incoming.pop(3))


def test_ranks_on_several_hosts_and_on_gpus_do_not_ask() -> None:
    group = Group(None, size=2, apart=True)
    assert Neighbours(group).signals() is None
    assert Neighbours(Group(None, size=2, by_host=True)).signals() is None
