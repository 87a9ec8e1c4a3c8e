"""Engines in virtual time: the equation, the ledger, the mean, resumption, pauses."""

from __future__ import annotations

import copy
from typing import Any

import dense
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_task import PADDED, RATE, SGDS, Small, oracle, simulate, small_gradient

from hadpsgd.decentralized.core.buffers import flatten
from hadpsgd.decentralized.core.events import Event, Mix, Update, ledger_faults
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.sgd import Sgd
from hadpsgd.decentralized.network.speeds import ComputeTimes, LinkTimes, Spread
from hadpsgd.decentralized.record.replay import Replay
from hadpsgd.decentralized.simulated.simulation import Node, Setting, Simulation
from hadpsgd.decentralized.strategies import registry as strategies
from hadpsgd.decentralized.strategies.registry import Choice
from hadpsgd.decentralized.topology.schedules import SCHEDULES, create


@pytest.mark.parametrize("sgd", SGDS)
@pytest.mark.parametrize("learners", [4, 5, 8])
@pytest.mark.parametrize(
    ("strategy", "schedule"),
    [
        ("ssgd", "complete"),
        ("dpsgd", "ring"),
        ("dpsgd", "random-ring"),
        ("dpsgd", "pairwise"),
        ("dpsgd", "exponential"),
        ("dpsgd", "one-peer-exponential"),
        ("dpsgd", "complete"),
        ("d1d", "complete"),
        ("local", "complete"),
    ],
)
def test_synchronous_strategies_are_their_closed_forms(
    strategy: str, schedule: str, learners: int, sgd: Sgd
) -> None:
    choice = Choice(strategy=strategy, every=3, synchronous_steps=2)
    simulation, _, start = simulate(choice, schedule, learners, 8, sgd=sgd)
    at, rates = np.repeat(start[:, None], learners, axis=1), [RATE] * 8
    plan = SCHEDULES[schedule](learners=learners, seed=3)
    expected = {
        "ssgd": lambda: dense.ssgd(at, small_gradient, rates, oracle(sgd)),
        "dpsgd": lambda: dense.dpsgd(
            at, small_gradient, rates, lambda k: plan.round(k).matrix(), oracle(sgd)
        ),
        "d1d": lambda: dense.d1d(at, small_gradient, rates, "mean", oracle(sgd)),
        "local": lambda: dense.local(
            at, small_gradient, rates, every=3, synchronous=2, sgd=oracle(sgd)
        ),
    }[strategy]()
    np.testing.assert_allclose(simulation.weights().numpy().T, expected, rtol=1e-11, atol=1e-12)


def test_super_learners_take_the_mean_gradient_of_their_learners() -> None:
    simulation, _, start = simulate(Choice(strategy="dpsgd"), "ring", 4, 6, size=3)
    at, plan = np.repeat(start[:, None], 4, axis=1), SCHEDULES["ring"](learners=4)
    gradient = dense.grouped(small_gradient, 3)
    expected = dense.dpsgd(at, gradient, [RATE] * 6, lambda k: plan.round(k).matrix())
    np.testing.assert_allclose(simulation.weights().numpy().T, expected, rtol=1e-11)


@given(st.data(), st.integers(2, 9), st.sampled_from(SGDS))
@settings(max_examples=60)
def test_adpsgd_in_any_weather(data: st.DataObject, learners: int, sgd: Sgd) -> None:
    """Whatever the speeds: it ends, equals the equation, keeps ledger, mean and staleness cap."""
    schedule = data.draw(st.sampled_from(["ring", "random-ring", "pairwise", "complete"]))
    cap = data.draw(st.sampled_from([1, 2, 5, 64]))
    choice = Choice(strategy="adpsgd", pace=data.draw(st.integers(0, 4)), max_staleness=cap)
    factors = {i: data.draw(st.sampled_from([1.0, 1.0, 2.0, 5.0])) for i in range(learners)}
    spread: Spread = data.draw(st.sampled_from(["none", "exponential", "lognormal"]))
    compute = ComputeTimes(
        seconds=1.0,
        factors=factors,
        spread=spread,
        deviation=0.5,
        seed=data.draw(st.integers(0, 99)),
    )
    latency = data.draw(st.sampled_from([0.0, 0.01, 0.4, 3.0]))
    links = LinkTimes(latency=latency, bandwidth=data.draw(st.sampled_from([1e9, 1e3, 100.0])))
    steps = data.draw(st.integers(1, 6))
    simulation, log, start = simulate(
        choice, schedule, learners, steps, compute=compute, links=links, sgd=sgd
    )
    assert simulation.clock.now() < 1000, "the run never ended"
    record = {node.index: node.events for node in simulation.nodes}
    assert not ledger_faults(record)
    assert all(
        [e.step for e in r if isinstance(e, Update)] == list(range(steps)) for r in record.values()
    )
    assert max(step.staleness for step in log) <= cap
    rounds = [[e.round for e in events if isinstance(e, Mix)] for events in record.values()]
    assert all(r == list(range(len(rounds[0]))) for r in rounds), "a round was missed or made twice"

    versions = dense.evaluate(record, dict.fromkeys(record, start), small_gradient, oracle(sgd))
    final = np.array([versions[i][-1] for i in range(learners)])
    np.testing.assert_allclose(simulation.weights().numpy(), final, rtol=1e-10, atol=1e-12)
    # what mixing did, it did not do to the mean
    moved = sum(own_updates(record[i], versions[i], i, sgd) for i in range(learners))
    np.testing.assert_allclose(final.mean(0), start + moved / learners, rtol=1e-10, atol=1e-12)


@given(st.data(), st.integers(2, 6), st.sampled_from(SGDS))
@settings(max_examples=30)
def test_replay_of_a_simulated_run_gives_the_same_bits(
    data: st.DataObject, learners: int, sgd: Sgd
) -> None:
    strategy, schedule = data.draw(
        st.sampled_from(
            [
                ("adpsgd", "ring"),
                ("adpsgd", "random-ring"),
                ("adpsgd", "pairwise"),
                ("dpsgd", "exponential"),
                ("d1d", "complete"),
                ("local", "complete"),
            ]
        )
    )
    latency = data.draw(st.sampled_from([0.0, 0.4, 3.0]))
    compute = ComputeTimes(
        seconds=1.0, factors={0: 3.0}, spread="exponential", seed=data.draw(st.integers(0, 99))
    )
    choice = Choice(strategy=strategy, pace=data.draw(st.integers(1, 3)), every=2)
    simulation, _, _ = simulate(
        choice, schedule, learners, 8, compute=compute, links=LinkTimes(latency=latency), sgd=sgd
    )

    def gradient(node: int, learner: Learner) -> float:
        at = learner.model.numpy()
        learner.gradient.copy_(torch.from_numpy(small_gradient(node, learner.steps, at)))
        return 0.0

    kind = strategies.create(choice)
    again = {i: Learner(flatten(Small().module), sgd, late=kind.late) for i in range(learners)}
    records = {node.index: node.events for node in simulation.nodes}
    Replay(records, again, gradient, average=kind.collective).run()
    for node in simulation.nodes:
        learner = node.engine.learner
        learner.settle()
        assert torch.equal(again[node.index].weights, learner.weights)
        assert torch.equal(again[node.index].velocity, learner.velocity)


def own_updates(
    events: list[Event], versions: list[np.ndarray], learner: int, sgd: Sgd
) -> np.ndarray:
    """Sum of a learner's updates, its mixes left out."""
    velocity, total = np.zeros(PADDED), np.zeros(PADDED)
    for event in events:
        if isinstance(event, Update):
            phi = versions[event.read]
            gradient = small_gradient(learner, event.step, phi)
            direction, velocity = oracle(sgd).direction(gradient, phi, velocity)
            total -= event.rate * direction
    return total


def interrupted(
    setting: Setting, moment: float, by: int
) -> tuple[Simulation, dict[int, dict[str, Any]]]:
    """A run that all learners stop because learner `by` asks at a moment; and their states."""
    states: dict[int, dict[str, Any]] = {}

    def save(node: Node) -> None:
        states[node.index] = copy.deepcopy(node.engine.state_dict())

    simulation = Simulation(setting, Small(), record=True, on_pause=save)
    simulation.clock.after(moment, simulation.nodes[by].engine.request_stop)
    simulation.run(steps=10, seconds=300)
    return simulation, states


def resumed(setting: Setting, states: dict[int, dict[str, Any]]) -> Simulation:
    """The same run, from those states to its end."""
    simulation = Simulation(setting, Small(), record=True)
    for node in simulation.nodes:
        node.engine.load_state_dict(states[node.index])
    simulation.run(steps=10, seconds=300)
    return simulation


def a_setting(strategy: str, schedule: str, learners: int, **settings: Any) -> Setting:
    """Uneven learners with momentum."""
    return Setting(
        strategy=strategies.create(
            Choice(strategy=strategy, every=3, synchronous_steps=2, **settings)
        ),
        schedule=create(schedule, learners=learners, seed=3),
        compute=ComputeTimes(seconds=1.0, factors={0: 2.5}, spread="exponential"),
        links=LinkTimes(latency=0.1, bandwidth=1e3),
        sgd=Sgd(momentum=0.9),
        rate=lambda step: RATE / (1 + step % 3),
    )


@given(st.data(), st.integers(2, 6))
@settings(max_examples=40)
def test_synchronous_runs_resume_to_the_same_bits(data: st.DataObject, learners: int) -> None:
    strategy, schedule = data.draw(
        st.sampled_from(
            [
                ("ssgd", "complete"),
                ("dpsgd", "ring"),
                ("dpsgd", "random-ring"),
                ("dpsgd", "one-peer-exponential"),
                ("d1d", "complete"),
                ("local", "complete"),
            ]
        )
    )
    setting = a_setting(strategy, schedule, learners)
    whole = Simulation(setting, Small(), record=True)
    whole.run(steps=10)
    moment = data.draw(st.floats(0, 40))
    first, states = interrupted(setting, moment, data.draw(st.integers(0, learners - 1)))
    assert len(states) == learners
    assert len({(state["steps"], state["rounds"]) for state in states.values()}) == 1
    again = resumed(setting, states)
    assert torch.equal(again.weights(), whole.weights())
    for node in whole.nodes:
        before, after = (s.nodes[node.index] for s in (first, again))
        assert before.events + after.events == node.events
        assert torch.equal(after.engine.learner.velocity, node.engine.learner.velocity)


@given(st.data(), st.integers(2, 7))
@settings(max_examples=40)
def test_asynchronous_runs_pause_with_nothing_in_flight(data: st.DataObject, learners: int) -> None:
    schedule = data.draw(st.sampled_from(["ring", "random-ring", "pairwise", "complete"]))
    setting = a_setting(
        "adpsgd", schedule, learners, pace=data.draw(st.integers(1, 3)), max_staleness=8
    )
    moment = data.draw(st.floats(0, 40))
    first, states = interrupted(setting, moment, data.draw(st.integers(0, learners - 1)))
    assert len(states) == learners
    assert len({state["rounds"] for state in states.values()}) == 1
    again = resumed(setting, states)
    assert all(node.engine.steps == 10 for node in again.nodes)
    # both halves together are one run of the equation, momentum included
    record = {i: first.nodes[i].events + again.nodes[i].events for i in range(learners)}
    assert not ledger_faults(record)
    start = dict.fromkeys(record, Simulation(setting, Small()).mean().numpy())
    versions = dense.evaluate(record, start, small_gradient, oracle(setting.sgd))
    final = np.array([versions[i][-1] for i in record])
    np.testing.assert_allclose(again.weights().numpy(), final, rtol=1e-10, atol=1e-12)
    for i in record:
        cut = len(first.nodes[i].events)
        np.testing.assert_allclose(states[i]["weights"].numpy(), versions[i][cut], rtol=1e-10)


@given(st.data(), st.integers(2, 7))
@settings(max_examples=40)
def test_pauses_and_stops_at_any_moment_come_to_all_alike(
    data: st.DataObject, learners: int
) -> None:
    strategy, schedule = data.draw(
        st.sampled_from(
            [
                ("ssgd", "complete"),
                ("dpsgd", "pairwise"),
                ("d1d", "complete"),
                ("local", "complete"),
                ("adpsgd", "ring"),
                ("adpsgd", "random-ring"),
                ("adpsgd", "pairwise"),
            ]
        )
    )
    pauses: dict[int, list[tuple[int, bool]]] = {}

    def note(node: Node) -> None:
        pauses.setdefault(node.index, []).append((node.engine.rounds, node.engine.over))

    setting = a_setting(strategy, schedule, learners, max_staleness=8)
    simulation = Simulation(setting, Small(), record=True, on_pause=note)
    for _ in range(data.draw(st.integers(0, 4))):
        engine = simulation.nodes[data.draw(st.integers(0, learners - 1))].engine
        ask = data.draw(st.sampled_from([engine.request_pause] * 4 + [engine.request_stop]))
        simulation.clock.after(data.draw(st.floats(0, 40)), ask)
    simulation.run(steps=10, seconds=300)
    assert simulation.clock.now() < 300, "the run never ended"
    assert len(pauses) == learners
    assert all(mine == pauses[0] for mine in pauses.values())
    assert pauses[0][-1][1], "the last pause is the end"
    assert not ledger_faults({node.index: node.events for node in simulation.nodes})
