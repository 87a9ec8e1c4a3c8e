"""Strategies with a state beside the weights: DiLoCo, NoLoCo, stochastic gradient push."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dense
import numpy as np
import pytest
import torch
from engine_task import Result, Setup, dense_gradient, rate, run_setup
from simulated_task import RATE, SGDS, Small, oracle, small_gradient
from training_data import write_config
from training_runs import write_examples

from hadpsgd.config import load
from hadpsgd.decentralized.core.buffers import flatten
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.sgd import Sgd
from hadpsgd.decentralized.network.injectors import Injection
from hadpsgd.decentralized.network.speeds import ComputeTimes, LinkTimes
from hadpsgd.decentralized.record.replay import Replay
from hadpsgd.decentralized.simulated.simulation import Node, Setting, Simulation
from hadpsgd.decentralized.strategies.registry import Choice, create
from hadpsgd.decentralized.topology.mixing import MixingSchedule
from hadpsgd.decentralized.topology.schedules import create as create_schedule
from hadpsgd.training.job import assemble

pytestmark = pytest.mark.usefixtures("unrecorded")

STEPS = 11
LONGER = 20
"""A stop comes some rounds after it was asked for: steps enough for that."""
CASES = [
    (Choice(strategy="diloco", every=3), "complete", 0.0),
    (Choice(strategy="diloco", every=2, outer_rate=0.4, outer_momentum=0.0), "complete", 0.0),
    (Choice(strategy="noloco", every=3), "random-partner", 0.0),
    (Choice(strategy="noloco", every=1, outer_rate=0.9, outer_momentum=0.2), "pairwise", 0.0),
    (Choice(strategy="sgp"), "one-peer-exponential", 0.0),
    (Choice(strategy="sgp"), "one-peer-exponential", 0.4),
    (Choice(strategy="sgp"), "exponential", 0.3),
    (Choice(strategy="sgp"), "ring", 0.0),
]
"""Strategy, mixing schedule, share of messages lost."""
BY_CASE = pytest.mark.parametrize(
    ("choice", "schedule", "drop"), CASES, ids=[f"{c.strategy}-{s}-{d}" for c, s, d in CASES]
)


def plan(choice: Choice, schedule: str, learners: int, drop: float) -> MixingSchedule:
    """The rounds of a run."""
    base = create_schedule(schedule, learners=learners, seed=5)
    return Injection(drop=drop, seed=5).on(base, one_way=create(choice).push_sum)


def expected(
    choice: Choice,
    rounds: MixingSchedule,
    start: np.ndarray,
    gradient: dense.Gradient,
    rates: list[float],
    sgd: dense.Sgd,
) -> np.ndarray:
    """Weights [P, L] by the dense evaluation."""
    momentum = choice.outer_momentum

    def groups(k: int) -> list[list[int]]:
        return [list(g) for g in {tuple(sorted(row)) for row in rounds.round(k).takes}]

    if choice.strategy == "diloco":
        outer = dense.Sgd(momentum=0.9 if momentum is None else momentum, nesterov=True)
        return dense.diloco(
            start, gradient, rates, every=choice.every, outer_rate=choice.outer_rate, outer=outer,
            sgd=sgd,
        )  # fmt: skip
    if choice.strategy == "noloco":
        return dense.noloco(
            start, gradient, rates, groups, every=choice.every, outer_rate=choice.outer_rate,
            outer_momentum=0.5 if momentum is None else momentum, sgd=sgd,
        )  # fmt: skip
    return dense.sgp(start, gradient, rates, lambda k: rounds.round(k).matrix(), sgd)[0]


def setting(choice: Choice, rounds: MixingSchedule, sgd: Sgd) -> Setting:
    """Uneven learners."""
    return Setting(
        strategy=create(choice),
        schedule=rounds,
        compute=ComputeTimes(seconds=1.0, factors={0: 2.5}, spread="exponential"),
        links=LinkTimes(latency=0.1, bandwidth=1e4),
        sgd=sgd,
        rate=lambda _: RATE,
    )


@pytest.mark.parametrize("sgd", SGDS, ids=str)
@pytest.mark.parametrize("learners", [4, 5])
@BY_CASE
def test_they_are_their_closed_forms(
    choice: Choice, schedule: str, drop: float, learners: int, sgd: Sgd
) -> None:
    rounds = plan(choice, schedule, learners, drop)
    simulation = Simulation(setting(choice, rounds, sgd), Small(), record=True)
    start = np.repeat(simulation.mean().numpy()[:, None].copy(), learners, axis=1)
    log = simulation.run(steps=STEPS, seconds=1000)
    wanted = expected(choice, rounds, start, small_gradient, [RATE] * STEPS, oracle(sgd))
    np.testing.assert_allclose(simulation.weights().numpy().T, wanted, rtol=1e-11, atol=1e-12)
    assert all(step.staleness == 0 for step in log)


def test_lost_messages_make_push_sum_weights_and_keep_the_sum() -> None:
    """The model that gradients are taken at is z = x / w."""
    choice, learners = Choice(strategy="sgp"), 5
    rounds = plan(choice, "one-peer-exponential", learners, 0.4)
    made = [rounds.round(k).matrix() for k in range(STEPS)]
    assert any(abs(matrix.sum(axis=0) - 1).max() > 0.4 for matrix in made)
    for matrix in made:
        np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-12)
    simulation = Simulation(setting(choice, rounds, SGDS[0]), Small())
    start = np.repeat(simulation.mean().numpy()[:, None].copy(), learners, axis=1)
    simulation.run(steps=STEPS, seconds=1000)
    _, masses = dense.sgp(start, small_gradient, [RATE] * STEPS, rounds_of(rounds))
    assert masses.std() > 0.1
    assert masses.sum() == pytest.approx(learners)
    for node in simulation.nodes:
        learner = node.engine.learner
        torch.testing.assert_close(learner.model, learner.weights / masses[node.index])


def rounds_of(schedule: MixingSchedule) -> Callable[[int], np.ndarray]:
    """Its matrices."""
    return lambda k: schedule.round(k).matrix()


@pytest.mark.parametrize("learners", [4, 5])
@pytest.mark.parametrize("moment", [2.0, 6.0])
@BY_CASE
def test_they_resume_to_the_same_bits(
    choice: Choice, schedule: str, drop: float, learners: int, moment: float
) -> None:
    """Outer momentum and push-sum weights are in the checkpoint."""
    wanted = setting(choice, plan(choice, schedule, learners, drop), Sgd(momentum=0.9))
    whole = Simulation(wanted, Small(), record=True)
    whole.run(steps=LONGER, seconds=1000)
    states: dict[int, dict[str, Any]] = {}

    def save(node: Node) -> None:
        states[node.index] = copy.deepcopy(node.engine.state_dict())

    first = Simulation(wanted, Small(), record=True, on_pause=save)
    first.clock.after(moment, first.nodes[learners - 1].engine.request_stop)
    first.run(steps=LONGER, seconds=1000)
    assert len({(state["steps"], state["rounds"]) for state in states.values()}) == 1
    assert 0 < states[0]["steps"] < LONGER
    again = Simulation(wanted, Small(), record=True)
    for node in again.nodes:
        node.engine.load_state_dict(states[node.index])
    again.run(steps=LONGER, seconds=1000)
    for node in whole.nodes:
        before, after = first.nodes[node.index], again.nodes[node.index]
        assert before.events + after.events == node.events
        assert same_bits(after.engine.learner, node.engine.learner)


def same_bits(one: Learner, other: Learner) -> bool:
    """Weights, model, momentum and the state beside them."""
    assert one.outer is not None and other.outer is not None
    ours, theirs = one.outer.state(), other.outer.state()
    assert ours.keys() == theirs.keys()
    pairs = [(one.weights, other.weights), (one.model, other.model)]
    pairs += [(one.velocity, other.velocity), *((ours[name], theirs[name]) for name in ours)]
    return all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs)


@pytest.mark.parametrize("learners", [4, 5])
@BY_CASE
def test_a_record_replays_to_the_same_bits(
    choice: Choice, schedule: str, drop: float, learners: int
) -> None:
    rounds, sgd = plan(choice, schedule, learners, drop), Sgd(momentum=0.9, nesterov=True)
    simulation = Simulation(setting(choice, rounds, sgd), Small(), record=True)
    simulation.run(steps=STEPS, seconds=1000)

    def gradient(node: int, learner: Learner) -> float:
        at = learner.model.numpy()
        learner.gradient.copy_(torch.from_numpy(small_gradient(node, learner.steps, at)))
        return 0.0

    kind, again = create(choice), {}
    for index in range(learners):
        flat = flatten(Small().module)
        again[index] = Learner(flat, sgd, outer=kind.outer(flat.weights, rounds, index))
    records = {node.index: node.events for node in simulation.nodes}
    Replay(records, again, gradient, average=kind.collective).run()
    for node in simulation.nodes:
        assert same_bits(again[node.index], node.engine.learner)


def test_diloco_with_a_plain_outer_step_is_local() -> None:
    """An outer rate of 1 without momentum: the average takes the place of the weights."""
    ends = []
    for choice in (
        Choice(strategy="local", every=3),
        Choice(strategy="diloco", every=3, outer_rate=1.0, outer_momentum=0.0),
    ):
        rounds = create_schedule("complete", learners=4)
        simulation = Simulation(setting(choice, rounds, SGDS[1]), Small())
        simulation.run(steps=STEPS, seconds=1000)
        ends.append(simulation.weights())
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-12, atol=1e-12)


def test_virtual_learners_bear_lost_messages(tmp_path: Path) -> None:
    """The same schedule as processes have, which other strategies are refused."""
    egs = write_examples(tmp_path / "egs")
    run = {"name": "v", "strategy": "sgp", "learners": 4, "launcher": "virtual"}
    config = load(write_config(tmp_path, [run | {"injected": {"drop": 0.3}}]))
    job = assemble(config, "v", egs=egs / "train", dev_egs=egs / "dev", out=tmp_path / "out")
    assert job.virtual is not None
    made = [job.virtual.setting.schedule.round(k).matrix() for k in range(10)]
    assert all(matrix.sum(axis=1) == pytest.approx(1) for matrix in made)
    assert any(matrix.sum(axis=0).std() > 0.1 for matrix in made)


MOMENTUM = Sgd(momentum=0.9)
PROCESSES = [
    Setup(Choice(strategy="diloco", every=3), "complete", 4),
    Setup(Choice(strategy="diloco", every=3), "complete", 4, 2),
    Setup(Choice(strategy="noloco", every=3), "random-partner", 5),
    Setup(Choice(strategy="noloco", every=3), "random-partner", 8, 2),
    Setup(Choice(strategy="sgp"), "one-peer-exponential", 5, injection=Injection(drop=0.3, seed=5)),
]


@pytest.mark.parametrize("setup", PROCESSES, ids=lambda s: f"{s.strategy.strategy}-{s.size}")
def test_in_processes(setup: Setup) -> None:
    """Over real connections; learners of a super-learner hold equal copies."""
    results = run_setup(replace(setup, sgd=MOMENTUM), seconds=240)
    nodes = results[:: setup.size]
    for place, result in enumerate(results):
        assert (result.weights == nodes[place // setup.size].weights).all()
    drop = setup.injection.drop if setup.injection else 0.0
    rounds = plan(setup.strategy, setup.schedule, len(nodes), drop)
    gradient = dense.grouped(dense_gradient(), setup.size)
    rates = [rate(step) for step in range(setup.steps)]
    wanted = expected(
        setup.strategy, rounds, starts(nodes), gradient, rates, dense.Sgd(momentum=0.9)
    )
    ended = np.stack([node.weights for node in nodes], axis=1)
    np.testing.assert_allclose(ended, wanted, rtol=1e-9, atol=1e-11)


def starts(results: list[Result]) -> np.ndarray:
    """Initial weights [P, L]."""
    return np.stack([result.start for result in results], axis=1)
