"""Every strategy in real processes equals the dense evaluation of W[k+1] = W[k] T - a g(Phi)."""

from __future__ import annotations

import dense
import numpy as np
import pytest
import torch
from engine_task import (
    Result,
    Setup,
    batch,
    ddp_learner,
    dense_gradient,
    leave_together,
    make_model,
    rate,
    run_setup,
)
from processes import run

from hadpsgd.decentralized.core.buffers import flatten
from hadpsgd.decentralized.core.events import Mix, Update, ledger_faults, staleness
from hadpsgd.decentralized.core.sgd import Sgd
from hadpsgd.decentralized.network import rendezvous
from hadpsgd.decentralized.strategies.ddp import DdpEngine
from hadpsgd.decentralized.strategies.registry import Choice
from hadpsgd.decentralized.topology.schedules import SCHEDULES, create
from hadpsgd.training.criterion import CrossEntropy

MOMENTUM = dense.Sgd(momentum=0.9)
LEARNERS = [4, 5, 8]
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


def relative_error(results: list[Result], wanted: np.ndarray) -> float:
    """Largest over the learners of |w - wanted| / |wanted|; wanted [P, learners]."""
    return max(
        float(np.linalg.norm(r.weights - w[: len(r.weights)]) / np.linalg.norm(w))
        for r, w in zip(results, wanted.T, strict=True)
    )


def starts(results: list[Result]) -> np.ndarray:
    """Initial weights [P, learners]."""
    return np.stack([r.start for r in results], axis=1)


def rates(setup: Setup) -> list[float]:
    """Learning rates of the run."""
    return [rate(step) for step in range(setup.steps)]


def matrices(setup: Setup) -> dense.Matrices:
    """Mixing matrices of the run's schedule."""
    schedule = create(setup.schedule, learners=setup.learners // setup.size, seed=5)
    return lambda k: schedule.round(k).matrix()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("learners", LEARNERS)
def test_ssgd(learners: int, dtype: torch.dtype) -> None:
    setup = Setup(Choice(strategy="ssgd"), learners=learners, size=learners, dtype=dtype)
    results = run_setup(setup)
    wanted = dense.ssgd(starts(results), dense_gradient(), rates(setup), MOMENTUM)
    assert relative_error(results, wanted) < TOLERANCE[dtype]
    assert all((r.weights == results[0].weights).all() for r in results)


@pytest.mark.parametrize("learners", LEARNERS)
@pytest.mark.parametrize(
    "schedule, dtype",
    [
        ("ring", torch.float32),
        *((name, torch.float64) for name in SCHEDULES),
    ],
)
def test_dpsgd(schedule: str, learners: int, dtype: torch.dtype) -> None:
    setup = Setup(Choice(strategy="dpsgd"), schedule, learners, dtype=dtype)
    results = run_setup(setup)
    start = starts(results)
    wanted = dense.dpsgd(start, dense_gradient(), rates(setup), matrices(setup), MOMENTUM)
    assert relative_error(results, wanted) < TOLERANCE[dtype]
    assert all(r.rounds == setup.steps for r in results)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("learners", LEARNERS)
def test_d1d(learners: int, dtype: torch.dtype) -> None:
    setup = Setup(Choice(strategy="d1d"), "complete", learners, dtype=dtype)
    results = run_setup(setup)
    wanted = dense.d1d(starts(results), dense_gradient(), rates(setup), "mean", MOMENTUM)
    assert relative_error(results, wanted) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("learners", LEARNERS)
def test_local(learners: int, dtype: torch.dtype) -> None:
    choice = Choice(strategy="local", every=3, synchronous_steps=4)
    setup = Setup(choice, "complete", learners, dtype=dtype)
    results = run_setup(setup)
    wanted = dense.local(
        starts(results), dense_gradient(), rates(setup), every=3, synchronous=4, sgd=MOMENTUM
    )
    assert relative_error(results, wanted) < TOLERANCE[dtype]


@pytest.mark.parametrize("learners", LEARNERS)
@pytest.mark.parametrize(
    "schedule, dtype",
    [
        ("ring", torch.float32),
        ("ring", torch.float64),
        ("random-ring", torch.float64),
        ("random-ring", torch.float32),
        ("pairwise", torch.float32),
        ("pairwise", torch.float64),
        ("complete", torch.float64),
    ],
)
def test_adpsgd(schedule: str, learners: int, dtype: torch.dtype) -> None:
    setup = Setup(Choice(strategy="adpsgd"), schedule, learners, dtype=dtype, jitter=0.004)
    results = run_setup(setup)
    check_record(results, setup)


@pytest.mark.parametrize(
    "nodes, size, dtype",
    [
        (2, 2, torch.float32),
        (2, 2, torch.float64),
        (4, 2, torch.float64),
        (2, 4, torch.float64),
    ],
)
@pytest.mark.parametrize("among", ["adpsgd", "dpsgd", "d1d", "local"])
def test_hadpsgd(among: str, nodes: int, size: int, dtype: torch.dtype) -> None:
    schedule = "complete" if among in ("d1d", "local") else "ring"
    setup = Setup(
        Choice(strategy=among, every=3), schedule, nodes * size, size, dtype=dtype, jitter=0.002
    )
    results = run_setup(setup)
    for node in range(nodes):
        members = results[node * size : (node + 1) * size]
        assert all((m.weights == members[0].weights).all() for m in members)
        assert all(m.events == members[0].events for m in members)
    check_record(results[::size], setup)


@pytest.mark.parametrize(
    "wire, nbytes, schedule, size",
    [("bfloat16", 2, "pairwise", 1), ("int8", 17 / 16, "ring", 1), ("int8", 17 / 16, "ring", 2)],
)
def test_rounded_weights(wire: str, nbytes: float, schedule: str, size: int) -> None:
    """In single messages of so many bytes a weight."""
    setup = Setup(Choice(strategy="adpsgd", wire=wire), schedule, 3 * size, size, jitter=0.004)
    results = run_setup(setup)
    check_record(results[::size], setup)
    elements = len(results[0].weights) // size
    for place, result in enumerate(results):
        assert (result.weights == results[place // size * size].weights).all()
        assert result.peer_bytes and result.peer_bytes % (elements * nbytes) == 0


def test_super_learners_that_exchange_copies() -> None:
    """Gradients, shards and what members agree on, by the host's memory."""
    setup = Setup(Choice(strategy="adpsgd"), "ring", 4, 2, jitter=0.002, by_host=True)
    results = run_setup(setup)
    for one, other in (results[:2], results[2:]):
        assert one.events == other.events
        assert (one.weights == other.weights).all()
    check_record(results[::2], setup)


def test_a_slow_member_does_not_slow_the_mixing() -> None:
    """Its super-learner mixes during its gradients as well, and stays exact."""
    setup = Setup(Choice(strategy="adpsgd"), "ring", 6, 2, jitter=0.04, slow=5)
    results = run_setup(setup)
    for node in range(3):
        one, other = results[2 * node : 2 * node + 2]
        assert one.events == other.events
        assert (one.weights == other.weights).all()
    check_record(results[::2], setup)
    # while the others are at work, each of their gradients brings a round
    events = results[0].events
    mixes = [place for place, event in enumerate(events) if isinstance(event, Mix)]
    assert sum(isinstance(event, Update) for event in events[: mixes[15]]) < 10


def check_record(results: list[Result], setup: Setup) -> None:
    """The nodes' final weights are those that their records say."""
    record = {node: result.events for node, result in enumerate(results)}
    assert not ledger_faults(record)
    assert all(len(staleness(events)) == setup.steps for events in record.values())
    start = {node: result.start for node, result in enumerate(results)}
    gradient = dense.grouped(dense_gradient(), setup.size)
    rounding = {"float32": None, "bfloat16": dense.bfloat16, "int8": dense.int8}
    versions = dense.evaluate(record, start, gradient, MOMENTUM, rounding[setup.strategy.wire])
    wanted = np.stack([versions[node][-1] for node in record], axis=1)
    assert relative_error(results, wanted) < TOLERANCE[setup.dtype]
    assert any(result.rounds for result in results)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("learners", LEARNERS)
def test_ddp(learners: int, dtype: torch.dtype) -> None:
    """The strategy of that name: torch's own DDP behind the engine's interface."""
    setup = Setup(Choice(strategy="ddp"), learners=learners, size=learners, dtype=dtype)
    ended = run(learners, ddp_engine, setup)
    model = make_model(torch.float64)
    flat = flatten(model)
    start = np.repeat(flat.weights.numpy()[:, None], learners, axis=1)
    wanted = dense.ssgd(start, dense_gradient(), rates(setup), MOMENTUM)[:, 0]
    flat.weights.copy_(torch.from_numpy(wanted))
    packed = torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy()
    for parameters in ended:
        assert np.linalg.norm(parameters - packed) < TOLERANCE[dtype] * np.linalg.norm(packed)


def ddp_engine(rank: int, setup: Setup) -> np.ndarray:
    """One process of strategy ddp; its parameters in the order of the flat buffer."""
    meeting = rendezvous.meet(learners=setup.learners, size=setup.size, agree_on="same", seconds=20)
    engine = DdpEngine(CrossEntropy(make_model(setup.dtype)), setup.sgd, meeting)
    with engine:
        for step in range(setup.steps):
            engine.module(*batch(rank, step, setup.dtype)).backward()
            engine.step(rate(step), last=step + 1 == setup.steps)
    leave_together(meeting)
    return engine.weights.double().numpy()


def test_ssgd_is_ddp() -> None:
    """The same seeds: equal to 1e-6 after 50 steps in single precision."""
    setup = Setup(Choice(strategy="ssgd"), size=4, steps=50, dtype=torch.float32)
    ours = run_setup(setup)
    theirs = run(4, ddp_learner, setup)
    for mine, other in zip(ours, theirs, strict=True):
        assert np.linalg.norm(mine.parameters - other) < 1e-6 * np.linalg.norm(other)


@pytest.mark.parametrize(
    "sgd", [Sgd(), Sgd(momentum=0.9, nesterov=True), Sgd(momentum=0.5, weight_decay=0.1)], ids=str
)
def test_momentum_variants(sgd: Sgd) -> None:
    setup = Setup(Choice(strategy="dpsgd"), sgd=sgd)
    results = run_setup(setup)
    oracle = dense.Sgd(momentum=sgd.momentum, nesterov=sgd.nesterov, weight_decay=sgd.weight_decay)
    start = starts(results)
    wanted = dense.dpsgd(start, dense_gradient(), rates(setup), matrices(setup), oracle)
    assert relative_error(results, wanted) < TOLERANCE[torch.float64]
