"""Learners in virtual time: how fast they are, what they send, what they share."""

from __future__ import annotations

import pytest
import torch
from simulated_task import SGDS, Small, simulate

from hadpsgd.decentralized.network.speeds import ComputeTimes, LinkTimes
from hadpsgd.decentralized.simulated.overlap import shared_at
from hadpsgd.decentralized.simulated.simulation import Setting, Simulation
from hadpsgd.decentralized.simulated.toy import Toy
from hadpsgd.decentralized.strategies import registry as strategies
from hadpsgd.decentralized.strategies.registry import Choice
from hadpsgd.decentralized.topology.schedules import create


def speeds(choice: Choice, schedule: str, slow: float, learners: int = 16) -> list[float]:
    """Updates a second of each learner over 60 seconds, learner 0 being `slow` times slower."""
    setting = Setting(
        strategy=strategies.create(choice),
        schedule=create(schedule, learners=learners, seed=1),
        compute=ComputeTimes(seconds=1.0, factors={0: slow}),
        links=LinkTimes(latency=1e-3, bandwidth=1e4),
    )
    simulation = Simulation(setting, Small())
    log = simulation.run(seconds=60)
    return [sum(step.node == i for step in log) / 60 for i in range(learners)]


@pytest.mark.parametrize("schedule", ["ring", "random-ring", "pairwise"])
def test_a_straggler_does_not_slow_the_others_of_adpsgd(schedule: str) -> None:
    even, uneven = (speeds(Choice(strategy="adpsgd"), schedule, slow) for slow in (1.0, 5.0))
    assert min(uneven[1:]) >= 0.98 * min(even[1:])
    assert uneven[0] == pytest.approx(even[0] / 5, abs=1 / 60)


@pytest.mark.parametrize(
    ("strategy", "schedule"),
    [("ssgd", "complete"), ("d1d", "complete"), ("dpsgd", "ring"), ("dpsgd", "random-ring")],
)
def test_a_straggler_slows_all_who_wait_for_it(strategy: str, schedule: str) -> None:
    even, uneven = (speeds(Choice(strategy=strategy), schedule, slow) for slow in (1.0, 5.0))
    # in D-PSGD's ring, those far away feel it only after as many steps
    for fast, slowed in zip(even, uneven, strict=True):
        assert slowed < 0.4 * fast


def test_d1d_hides_its_allreduce_behind_the_gradient_and_ssgd_does_not() -> None:
    links = LinkTimes(latency=0.0, bandwidth=32 * 8 * 4)  # a model takes a quarter of a second
    ends = {}
    for strategy in ("ssgd", "d1d"):
        _, log, _ = simulate(
            Choice(strategy=strategy),
            "complete",
            4,
            10,
            compute=ComputeTimes(seconds=1.0),
            links=links,
        )
        ends[strategy] = max(step.moment for step in log)
    assert ends["d1d"] == pytest.approx(10)
    assert ends["ssgd"] == pytest.approx(10 * (1 + 2 * 3 / 4 * 0.25))


def test_gradients_are_averaged_beside_backward() -> None:
    """Forward takes a second, then four pieces come in two more, half a second each to average."""
    assert shared_at([(0.0, 3.0)], seconds=2.0, count=4) == pytest.approx(3.5)
    assert shared_at([(0.0, 3.0)], seconds=8.0, count=4) == pytest.approx(1.5 + 8)
    assert shared_at([(0.0, 3.0), (4.0, 5.5)], seconds=2.0, count=4) == pytest.approx(
        4.75 + 4 * 0.5
    )
    assert shared_at([(0.0, 3.0), (0.0, 6.0)], seconds=0.0, count=4) == 6.0


def test_ssgd_shows_what_backward_does_not_hide() -> None:
    """64 MiB in 8 pieces; an allreduce of 0.8 s, and backward takes 2/3 of a second."""
    model = 64 * 2**20
    setting = Setting(
        strategy=strategies.create(Choice(strategy="ssgd")),
        schedule=create("complete", learners=4),
        compute=ComputeTimes(seconds=1.0),
        links=LinkTimes(bandwidth=model * 1.5 / 0.8),
        model_bytes=model,
    )
    log = Simulation(setting, Small()).run(steps=5)
    assert max(step.moment for step in log) == pytest.approx(5 * (1 / 3 + 2 / 3 / 8 + 0.8))


def test_super_learners_pay_for_their_allreduce() -> None:
    for seconds, exposed in ((0.0, 0.0), (0.4, 0.4 / 8), (0.8, 1 / 3 + 2 / 3 / 8 + 0.8 - 1)):
        setting = Setting(
            strategy=strategies.create(Choice(strategy="hadpsgd")),
            schedule=create("ring", learners=2),
            compute=ComputeTimes(seconds=1.0),
            size=4,
            inside_seconds=seconds,
            model_bytes=64 * 2**20,
        )
        assert setting.gradient_seconds(node=0, step=0) == pytest.approx(1 + exposed)
        log = Simulation(setting, Small()).run(steps=5)
        assert max(step.moment for step in log) == pytest.approx(5 * (1 + exposed))


def test_the_same_seed_gives_the_same_bits() -> None:
    runs = [
        simulate(Choice(strategy="adpsgd"), "random-ring", 8, 10, sgd=SGDS[1]) for _ in range(2)
    ]
    assert torch.equal(runs[0][0].weights(), runs[1][0].weights())
    assert runs[0][1] == runs[1][1]


def test_bytes_of_an_iteration_are_two_models() -> None:
    for strategy, schedule in (("dpsgd", "ring"), ("dpsgd", "random-ring"), ("d1d", "complete")):
        simulation, _, _ = simulate(Choice(strategy=strategy), schedule, 8, 10)
        sent = simulation.bytes_sent() / 8 / 10 / simulation.network.model_bytes
        assert sent == pytest.approx(2 * 7 / 8 if strategy == "d1d" else 2)


@pytest.mark.parametrize("schedule", ["ring", "random-ring", "pairwise"])
@pytest.mark.parametrize("learners", [4, 32])
@pytest.mark.parametrize("pace", [1, 3])
def test_rounds_keep_the_pace_however_many_learners_and_fast_links(
    schedule: str, learners: int, pace: int
) -> None:
    setting = Setting(
        strategy=strategies.create(Choice(strategy="adpsgd", pace=pace)),
        schedule=create(schedule, learners=learners, seed=1),
        compute=ComputeTimes(seconds=1.0, spread="lognormal", deviation=0.1),
        links=LinkTimes(latency=1e-6),
    )
    simulation = Simulation(setting, Small())
    steps = len(simulation.run(seconds=30))
    mixes = sum(node.engine.rounds for node in simulation.nodes) / steps
    assert pace <= mixes < 1.25 * pace


def test_64_learners_share_one_module_and_one_gradient() -> None:
    setting = Setting(
        strategy=strategies.create(Choice(strategy="adpsgd")),
        schedule=create("ring", learners=64),
        compute=ComputeTimes(seconds=1.0),
        links=LinkTimes(),
    )
    problem = Toy(hidden=8)
    simulation = Simulation(setting, problem)
    simulation.run(steps=2)
    gradients = {node.engine.learner.gradient.data_ptr() for node in simulation.nodes}
    weights = {node.engine.learner.weights.data_ptr() for node in simulation.nodes}
    assert len(gradients) == 1
    assert len(weights) == 64
    assert problem.module is simulation.load_mean()


def test_a_simulation_has_an_end() -> None:
    setting = Setting(
        strategy=strategies.create(Choice(strategy="ssgd")),
        schedule=create("complete", learners=2),
        compute=ComputeTimes(seconds=1.0),
    )
    with pytest.raises(ValueError, match="ends after some steps or seconds"):
        Simulation(setting, Small()).run()
