"""Engines in virtual time: the equation, the ledger, the mean, stragglers, and that runs end."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from hadpsgd.decentralized import dense, strategies
from hadpsgd.decentralized.buffers import flatten
from hadpsgd.decentralized.events import Event, Mix, Update, ledger_faults
from hadpsgd.decentralized.learner import Learner
from hadpsgd.decentralized.replay import Replay
from hadpsgd.decentralized.schedules import SCHEDULES, create
from hadpsgd.decentralized.sgd import Sgd
from hadpsgd.decentralized.simulation import Node, Setting, Simulation, Step
from hadpsgd.decentralized.speeds import ComputeTimes, LinkTimes, Spread
from hadpsgd.decentralized.strategies import Choice
from hadpsgd.decentralized.toy import Toy

RATE = 0.1
SGDS = [Sgd(), Sgd(0.9), Sgd(0.9, nesterov=True), Sgd(0.5, weight_decay=0.1)]


class Small:
    """A problem of 8 parameters in float64 whose gradient NumPy knows as well."""

    def __init__(self) -> None:
        self.module: nn.Module = nn.Linear(3, 2).double()
        with torch.no_grad():
            for n, p in enumerate(self.module.parameters()):
                p.copy_(torch.arange(p.numel(), dtype=torch.float64).view(p.shape).sin() + n)

    def gradient(self, learner: int, step: int) -> float:
        """As `small_gradient`, through the module's own parameters and gradients."""
        with torch.no_grad():
            weight, bias = self.module.parameters()
            at = np.zeros(PADDED)
            at[:6], at[16:18] = weight.flatten().numpy(), bias.numpy()
            gradient = torch.from_numpy(small_gradient(learner, step, at))
            assert weight.grad is not None and bias.grad is not None
            weight.grad += gradient[:6].view(2, 3)
            bias.grad += gradient[16:18]
        return float(at @ at)


PADDED = 32
"""Elements of its flat buffer."""


def small_gradient(learner: int, step: int, at: np.ndarray) -> np.ndarray:
    """Nonlinear, another one for each learner and step; zero in the buffer's gaps."""
    draw = np.random.default_rng([learner, step])
    used = np.zeros(PADDED)
    used[:6] = used[16:18] = 1
    return used * np.tanh(draw.normal(size=PADDED) * at + draw.normal())


def oracle(sgd: Sgd) -> dense.Sgd:
    """The same settings for the dense evaluation."""
    return dense.Sgd(sgd.momentum, sgd.nesterov, sgd.weight_decay)


def simulate(
    choice: Choice,
    schedule: str,
    learners: int,
    steps: int,
    *,
    compute: ComputeTimes | None = None,
    links: LinkTimes | None = None,
    sgd: Sgd = SGDS[0],
    size: int = 1,
) -> tuple[Simulation, list[Step], np.ndarray]:
    """A finished simulation, its steps and the initial weights [P]."""
    setting = Setting(
        strategies.create(choice),
        create(schedule, learners, 3),
        compute or ComputeTimes(1.0, {0: 2.5}, "exponential"),
        links or LinkTimes(0.01, 1e4),
        size=size,
        sgd=sgd,
        rate=lambda _: RATE,
    )
    simulation = Simulation(setting, Small(), record=True)
    start = simulation.mean().numpy().copy()
    return simulation, simulation.run(steps=steps, seconds=1000), start


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
    choice = Choice(strategy, every=3, synchronous_steps=2)
    simulation, _, start = simulate(choice, schedule, learners, 8, sgd=sgd)
    at, rates = np.repeat(start[:, None], learners, axis=1), [RATE] * 8
    plan = SCHEDULES[schedule](learners, 3)
    expected = {
        "ssgd": lambda: dense.ssgd(at, small_gradient, rates, oracle(sgd)),
        "dpsgd": lambda: dense.dpsgd(
            at, small_gradient, rates, lambda k: plan.round(k).matrix(), oracle(sgd)
        ),
        "d1d": lambda: dense.d1d(at, small_gradient, rates, "mean", oracle(sgd)),
        "local": lambda: dense.local(at, small_gradient, rates, 3, 2, oracle(sgd)),
    }[strategy]()
    np.testing.assert_allclose(simulation.weights().numpy().T, expected, rtol=1e-11, atol=1e-12)


def test_super_learners_take_the_mean_gradient_of_their_learners() -> None:
    simulation, _, start = simulate(Choice("dpsgd"), "ring", 4, 6, size=3)
    at, plan = np.repeat(start[:, None], 4, axis=1), SCHEDULES["ring"](4)
    gradient = dense.grouped(small_gradient, 3)
    expected = dense.dpsgd(at, gradient, [RATE] * 6, lambda k: plan.round(k).matrix())
    np.testing.assert_allclose(simulation.weights().numpy().T, expected, rtol=1e-11)


@given(st.data(), st.integers(2, 9), st.sampled_from(SGDS))
@settings(deadline=None, max_examples=60)
def test_adpsgd_in_any_weather(data: st.DataObject, learners: int, sgd: Sgd) -> None:
    """Whatever the speeds: it ends, equals the equation, keeps ledger, mean and staleness cap."""
    schedule = data.draw(st.sampled_from(["ring", "random-ring", "pairwise", "complete"]))
    cap = data.draw(st.sampled_from([1, 2, 5, 64]))
    choice = Choice("adpsgd", pace=data.draw(st.integers(0, 4)), max_staleness=cap)
    factors = {i: data.draw(st.sampled_from([1.0, 1.0, 2.0, 5.0])) for i in range(learners)}
    spread: Spread = data.draw(st.sampled_from(["none", "exponential", "lognormal"]))
    compute = ComputeTimes(1.0, factors, spread, 0.5, seed=data.draw(st.integers(0, 99)))
    latency = data.draw(st.sampled_from([0.0, 0.01, 0.4, 3.0]))
    links = LinkTimes(latency, data.draw(st.sampled_from([1e9, 1e3, 100.0])))
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
@settings(deadline=None, max_examples=30)
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
    compute = ComputeTimes(1.0, {0: 3.0}, "exponential", seed=data.draw(st.integers(0, 99)))
    choice = Choice(strategy, pace=data.draw(st.integers(1, 3)), every=2)
    simulation, _, _ = simulate(
        choice, schedule, learners, 8, compute=compute, links=LinkTimes(latency), sgd=sgd
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
        strategies.create(Choice(strategy, every=3, synchronous_steps=2, **settings)),
        create(schedule, learners, 3),
        ComputeTimes(1.0, {0: 2.5}, "exponential"),
        LinkTimes(0.1, 1e3),
        sgd=Sgd(0.9),
        rate=lambda step: RATE / (1 + step % 3),
    )


@given(st.data(), st.integers(2, 6))
@settings(deadline=None, max_examples=40)
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
@settings(deadline=None, max_examples=40)
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
@settings(deadline=None, max_examples=40)
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


def speeds(choice: Choice, schedule: str, slow: float, learners: int = 16) -> list[float]:
    """Updates a second of each learner over 60 seconds, learner 0 being `slow` times slower."""
    setting = Setting(
        strategies.create(choice),
        create(schedule, learners, 1),
        ComputeTimes(1.0, {0: slow}),
        LinkTimes(1e-3, 1e4),
    )
    simulation = Simulation(setting, Small())
    log = simulation.run(seconds=60)
    return [sum(step.node == i for step in log) / 60 for i in range(learners)]


@pytest.mark.parametrize("schedule", ["ring", "random-ring", "pairwise"])
def test_a_straggler_does_not_slow_the_others_of_adpsgd(schedule: str) -> None:
    even, uneven = (speeds(Choice("adpsgd"), schedule, slow) for slow in (1.0, 5.0))
    assert min(uneven[1:]) >= 0.98 * min(even[1:])
    assert uneven[0] == pytest.approx(even[0] / 5, abs=1 / 60)


@pytest.mark.parametrize(
    ("strategy", "schedule"),
    [("ssgd", "complete"), ("d1d", "complete"), ("dpsgd", "ring"), ("dpsgd", "random-ring")],
)
def test_a_straggler_slows_all_who_wait_for_it(strategy: str, schedule: str) -> None:
    even, uneven = (speeds(Choice(strategy), schedule, slow) for slow in (1.0, 5.0))
    # in D-PSGD's ring, those far away feel it only after as many steps
    for fast, slowed in zip(even, uneven, strict=True):
        assert slowed < 0.4 * fast


def test_d1d_hides_its_allreduce_behind_the_gradient_and_ssgd_does_not() -> None:
    links = LinkTimes(0.0, 32 * 8 * 4)  # a model takes a quarter of a second
    ends = {}
    for strategy in ("ssgd", "d1d"):
        _, log, _ = simulate(
            Choice(strategy), "complete", 4, 10, compute=ComputeTimes(1.0), links=links
        )
        ends[strategy] = max(step.moment for step in log)
    assert ends["d1d"] == pytest.approx(10)
    assert ends["ssgd"] == pytest.approx(10 * (1 + 2 * 3 / 4 * 0.25))


def test_the_same_seed_gives_the_same_bits() -> None:
    runs = [simulate(Choice("adpsgd"), "random-ring", 8, 10, sgd=SGDS[1]) for _ in range(2)]
    assert torch.equal(runs[0][0].weights(), runs[1][0].weights())
    assert runs[0][1] == runs[1][1]


def test_bytes_of_an_iteration_are_two_models() -> None:
    for strategy, schedule in (("dpsgd", "ring"), ("dpsgd", "random-ring"), ("d1d", "complete")):
        simulation, _, _ = simulate(Choice(strategy), schedule, 8, 10)
        sent = simulation.bytes_sent() / 8 / 10 / simulation.network.model_bytes
        assert sent == pytest.approx(2 * 7 / 8 if strategy == "d1d" else 2)


@pytest.mark.parametrize("schedule", ["ring", "random-ring", "pairwise"])
@pytest.mark.parametrize("learners", [4, 32])
@pytest.mark.parametrize("pace", [1, 3])
def test_rounds_keep_the_pace_however_many_learners_and_fast_links(
    schedule: str, learners: int, pace: int
) -> None:
    setting = Setting(
        strategies.create(Choice("adpsgd", pace=pace)),
        create(schedule, learners, 1),
        ComputeTimes(1.0, spread="lognormal", deviation=0.1),
        LinkTimes(1e-6),
    )
    simulation = Simulation(setting, Small())
    steps = len(simulation.run(seconds=30))
    mixes = sum(node.engine.rounds for node in simulation.nodes) / steps
    assert pace <= mixes < 1.25 * pace


def test_64_learners_share_one_module_and_one_gradient() -> None:
    setting = Setting(
        strategies.create(Choice("adpsgd")), create("ring", 64), ComputeTimes(1.0), LinkTimes()
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
    setting = Setting(strategies.create(Choice("ssgd")), create("complete", 2), ComputeTimes(1.0))
    with pytest.raises(ValueError, match="ends after some steps or seconds"):
        Simulation(setting, Small()).run()
