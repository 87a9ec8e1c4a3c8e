"""Every strategy, four processes that share a GPU: the dense evaluation, as on processors.

What forks comes first: the oracle's backward passes wake CUDA in this process.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import dense
import numpy as np
import pytest
import test_outer
import torch
from engine_task import Result, Setup, dense_gradient, learner
from processes import run, run_beside
from test_engine_exact import (
    MOMENTUM,
    TOLERANCE,
    check_record,
    matrices,
    rates,
    relative_error,
    starts,
)

from hadpsgd.decentralized.core.sums import mean_of
from hadpsgd.decentralized.network.averaging import Averaging
from hadpsgd.decentralized.network.collectives import Group
from hadpsgd.decentralized.strategies.registry import Choice

STEPS = 9


def setup(strategy: str, schedule: str, size: int = 1, jitter: float = 0.0, **more: Any) -> Setup:
    """Four learners whose messages go by the host's memory."""
    choice = Choice(strategy=strategy, **more)
    return Setup(choice, schedule, 4, size, STEPS, jitter=jitter, by_host=True)


SYNCHRONOUS = {
    "ssgd": setup("ssgd", "ring", size=4),
    "dpsgd": setup("dpsgd", "ring"),
    "d1d": setup("d1d", "complete"),
    "local": setup("local", "complete", every=3, synchronous_steps=4),
    "diloco": setup("diloco", "complete", every=3),
    "noloco": setup("noloco", "random-partner", every=3),
    "sgp": setup("sgp", "one-peer-exponential"),
}
RECORDED = {
    "adpsgd": setup("adpsgd", "ring", jitter=0.004),
    "adpsgd-random-partner": setup("adpsgd", "random-partner", jitter=0.004),
    "adpsgd-bfloat16": setup("adpsgd", "ring", jitter=0.004, wire="bfloat16"),
    "rand": setup("rand", "random-ring", jitter=0.004),
    "hadpsgd-adpsgd": setup("adpsgd", "ring", size=2, jitter=0.002),
    "hadpsgd-dpsgd": setup("dpsgd", "ring", size=2),
    "hadpsgd-d1d": setup("d1d", "complete", size=2),
}
CASES = SYNCHRONOUS | RECORDED


def means(_: int, device: str) -> list[np.ndarray]:
    """Of three rows, on the device and on the host."""
    rows = torch.randn(3, 10_000, generator=torch.Generator().manual_seed(1))
    found = []
    for place in (device, "cpu"):
        out = torch.empty(10_000, device=place)
        mean_of(rows.to(place), out)
        found.append(out.cpu().numpy())
    return found


def test_a_mean_has_the_same_bits_on_both(device: str) -> None:
    """What the hosts' memory averages is replayed on a GPU."""
    [(ours, theirs)] = run(1, means, device)
    assert (ours == theirs).all()


def by_nccl(_: int) -> list[float]:
    """A group of one rank: its collectives, as groups of more use them."""
    torch.distributed.init_process_group(
        "cpu:gloo,cuda:nccl", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    group = Group(torch.distributed.group.WORLD)
    buffer = torch.arange(64.0, device="cuda")
    rows, out = torch.empty(1, 64, device="cuda"), torch.empty(64, device="cuda")
    for begun in group.begin_scatter(rows, buffer, 0)[0]:
        begun.wait()
    for begun in group.begin_gather(out, rows[0]):
        begun.wait()
    Averaging(group, buffer).run()
    group.gather(out, buffer)
    found: list[float] = (out + rows[0] - 2 * buffer).abs().cpu().tolist()
    torch.distributed.destroy_process_group()
    return found


def test_nccl_of_one_rank(device: str) -> None:
    if device != "cuda":
        pytest.skip("NCCL needs a GPU")
    if not hasattr(torch.distributed, "all_gather_single"):
        pytest.skip(f"torch {torch.__version__} has no all_gather_single, 2.13 has")
    assert not any(run(1, by_nccl)[0])


@pytest.fixture(scope="module")
def ended(device: str) -> dict[str, list[Any] | str]:
    """All runs."""
    calls = {n: (4, learner, (replace(case, device=device),)) for n, case in CASES.items()}
    return run_beside(calls, seconds=90)


def results_of(name: str, ended: dict[str, list[Any] | str]) -> list[Result]:
    """Of the learners, which have all come to their ends."""
    found = ended[name]
    assert not isinstance(found, str), found
    return found


@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_synchronous(name: str, ended: dict[str, list[Any] | str]) -> None:
    results, case = results_of(name, ended), CASES[name]
    start, gradient, steps = starts(results), dense_gradient(), rates(case)
    if name == "ssgd":
        wanted = dense.ssgd(start, gradient, steps, MOMENTUM)
    elif name == "dpsgd":
        wanted = dense.dpsgd(start, gradient, steps, matrices(case), MOMENTUM)
    elif name == "d1d":
        wanted = dense.d1d(start, gradient, steps, "mean", MOMENTUM)
    elif name == "local":
        wanted = dense.local(start, gradient, steps, every=3, synchronous=4, sgd=MOMENTUM)
    else:
        plan = test_outer.plan(case.strategy, case.schedule, 4, 0.0)
        wanted = test_outer.expected(case.strategy, plan, start, gradient, steps, MOMENTUM)
    assert relative_error(results, wanted) < TOLERANCE[torch.float64]


@pytest.mark.parametrize("name", RECORDED)
def test_recorded(name: str, ended: dict[str, list[Any] | str]) -> None:
    """The weights are those that the record says."""
    results, case = results_of(name, ended), CASES[name]
    for first in range(0, 4, case.size):
        members = results[first : first + case.size]
        assert all((m.weights == members[0].weights).all() for m in members)
        assert all(m.events == members[0].events for m in members)
    check_record(results[:: case.size], case)
