"""Averages over a group: pieces of the gradient, and which groups are on several hosts."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from engine_task import Setup, leave_together, make_model, run_setup
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import run

from hadpsgd.decentralized.core.buffers import ALIGN, flatten
from hadpsgd.decentralized.network import reducer as reducing
from hadpsgd.decentralized.network import rendezvous
from hadpsgd.decentralized.network.collectives import Group
from hadpsgd.decentralized.network.reducer import bucket_edges
from hadpsgd.decentralized.strategies.registry import Choice
from hadpsgd.models.blstm import BLSTM


def test_pieces_of_the_gradient_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(Choice(strategy="ssgd"), learners=3, size=3, steps=8)
    whole = run_setup(setup)
    monkeypatch.setattr(rendezvous.Meeting, "apart", lambda *_: True)
    monkeypatch.setattr(reducing, "PIECE_BYTES", 512)
    flat = flatten(make_model(setup.dtype), shards=3)
    assert len(bucket_edges(flat, 3, apart=True)) > 4
    pieces = run_setup(setup)
    assert (whole[0].weights != whole[0].start).any()
    assert all((one.weights == whole[0].weights).all() for one in whole + pieces)
    assert [one.bytes_sent for one in pieces] == [one.bytes_sent for one in whole]


@pytest.mark.parametrize(
    "choice, size",
    [
        (Choice(strategy="ssgd"), 3),
        (Choice(strategy="d1d"), 1),
        (Choice(strategy="local", every=2, synchronous_steps=3), 1),
    ],
    ids=["ssgd", "d1d", "local"],
)
def test_copies_in_the_hosts_memory_change_no_bit(choice: Choice, size: int) -> None:
    """What learners on GPUs do where NCCL cannot serve; the copies are real on CPUs, too."""
    setup = Setup(choice, "complete", learners=3, size=size, steps=8)
    directly = run_setup(setup)
    copied = run_setup(replace(setup, by_host=True))
    assert (directly[0].weights != directly[0].start).any()
    for one, other in zip(directly, copied, strict=True):
        assert (one.weights == other.weights).all()
        assert one.bytes_sent == other.bytes_sent


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_super_learner_sends_each_weight_once(size: int) -> None:
    """However many learners it has: to its one partner, all of them together, a model a round."""
    setup = Setup(Choice(strategy="dpsgd"), learners=2 * size, size=size, steps=10)
    model = flatten(make_model(setup.dtype), shards=setup.learners).weights.nbytes
    results = run_setup(setup)
    for node in (results[:size], results[size:]):
        models = sum(member.peer_bytes for member in node) / model / setup.steps
        assert models == 1  # headers aside


@pytest.mark.parametrize("among", ["d1d", "local"])
def test_an_average_among_super_learners_takes_what_an_allreduce_does(among: str) -> None:
    """Each of n sends 2 (n-1)/n models; all members of all get the same bits."""
    nodes, size, steps = 4, 2, 6
    setup = Setup(Choice(strategy=among, every=2), "complete", nodes * size, size, steps=steps)
    model = flatten(make_model(setup.dtype), shards=setup.learners).weights.nbytes
    results = run_setup(setup)
    rounds = {"d1d": steps, "local": steps // 2}[among]
    for node in range(nodes):
        members = results[node * size : (node + 1) * size]
        sent = sum(member.peer_bytes for member in members)
        assert sent * nodes == 2 * (nodes - 1) * model * rounds  # headers aside
    if among == "local":  # it ends with an average
        assert all((one.weights == results[0].weights).all() for one in results)


@given(size=st.integers(1, 9), layers=st.integers(1, 2), cells=st.integers(1, 300))
@settings(max_examples=25, deadline=None)
def test_buckets_cover_the_gradient(size: int, layers: int, cells: int) -> None:
    shape = SimpleNamespace(
        layers=layers, cells=cells, projection=8, dropout=0.0, frames_per_step=1
    )
    flat = flatten(BLSTM(shape, input_dim=20, num_pdfs=30, seed=0), shards=size)
    near, far = (bucket_edges(flat, size, apart=apart) for apart in (False, True))
    for edges in (near, far):
        assert (edges[0], edges[-1]) == (0, flat.with_control.numel())
        lengths = [stop - start for start, stop in pairwise(edges)]
        assert all(n > 0 and n % (size * ALIGN) == 0 for n in lengths)
        assert max(lengths) <= 2 * reducing.BUCKET_BYTES / 4 + flat.control.numel()
    assert len(far) >= len(near)
    if 4 * flat.elements > 2**20:
        assert len(far) > 2


def hosts_of(rank: int) -> tuple[bool, bool]:
    """Whether all, and the own pair of, four ranks are on several hosts."""
    meeting = replace(
        rendezvous.meet(learners=4, size=2, agree_on="same", seconds=20), host=f"host-{rank // 2}"
    )
    pair = range(rank // 2 * 2, rank // 2 * 2 + 2)
    found = meeting.apart(range(4)), meeting.apart(pair)
    leave_together(meeting)
    return found


def test_groups_on_several_hosts_are_known_to_all_members() -> None:
    assert run(4, hosts_of) == [(True, False)] * 4


def test_a_value_that_is_not_finite_is_named_from_every_piece() -> None:
    """`culprits` looks at all pieces; the rows hold the values before they were averaged."""
    assert run(3, poisoned) == [[1, 2]] * 3


def poisoned(rank: int) -> list[int]:
    """Members 1 and 2 bring a bad value each, far apart; whom the reducer names."""
    meeting = rendezvous.meet(learners=3, size=3, agree_on="same", seconds=20)
    rendezvous.process_group("all", meeting, rank=rank, size=3)
    reducing.PIECE_BYTES = 512
    flat = flatten(make_model(torch.float64), shards=3)
    group = Group(torch.distributed.group.WORLD, apart=True)
    reducer = reducing.Reducer(flat, group)
    if rank:
        flat.gradient[[0, 0, -1][rank]] = [0.0, torch.nan, torch.inf][rank]
    reducer.finish()
    named = reducer.culprits()
    torch.distributed.barrier()
    leave_together(meeting)
    return named
