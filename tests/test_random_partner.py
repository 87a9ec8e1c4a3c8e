"""Partners drawn at random, in virtual time: mean, atomic exchanges, no deadlock, pauses, links."""

from __future__ import annotations

import copy
import math
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import dense
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_task import SGDS, Small, oracle, small_gradient

from hadpsgd.decentralized.assembly import schedule_of
from hadpsgd.decentralized.core.events import Event, Mix, ledger_faults
from hadpsgd.decentralized.core.sgd import Sgd
from hadpsgd.decentralized.network.injectors import Injection
from hadpsgd.decentralized.network.queueing import QUEUE_SECONDS
from hadpsgd.decentralized.network.speeds import ComputeTimes, LinkTimes
from hadpsgd.decentralized.network.wire import Header
from hadpsgd.decentralized.simulated.simulation import Node, Setting, Simulation
from hadpsgd.decentralized.simulated.transport import SimulatedTransport
from hadpsgd.decentralized.strategies import registry
from hadpsgd.decentralized.strategies.registry import Choice, Strategy
from hadpsgd.decentralized.strategies.strategy import check
from hadpsgd.decentralized.topology.schedules import create
from hadpsgd.errors import UserError

STEPS = 10
LIMIT = 1000.0
"""Simulated seconds that no run here needs."""


def strategy_called(name: str, **choice: Any) -> Strategy:
    """A strategy."""
    return registry.create(Choice(strategy=name, **choice))


def a_setting(
    learners: int,
    *,
    seed: int = 3,
    compute: ComputeTimes | None = None,
    links: LinkTimes | None = None,
    sgd: Sgd = SGDS[1],
    rate: float = 0.1,
    model_bytes: float | None = None,
    **choice: Any,
) -> Setting:
    """Uneven learners that draw their partners."""
    return Setting(
        strategy=strategy_called("adpsgd", **choice),
        schedule=create("random-partner", learners=learners, seed=seed),
        compute=compute or ComputeTimes(seconds=1.0, factors={0: 2.5}, spread="exponential"),
        links=links or LinkTimes(latency=0.1, bandwidth=1e3),
        sgd=sgd,
        rate=lambda _: rate,
        model_bytes=model_bytes,
    )


def scrambled(seed: int) -> Callable[[SimulatedTransport, int, Header], None]:
    """In place of `SimulatedTransport.tell`: messages need any time, and keep their order."""
    draws = np.random.default_rng(seed)
    last: defaultdict[tuple[int, int], float] = defaultdict(float)

    def tell(self: SimulatedTransport, j: int, message: Header) -> None:
        clock = self.network.clock
        moment = clock.now() + draws.choice([0.0, 0.001, 0.3, 2.0])
        last[self.rank, j] = moment = max(moment, last[self.rank, j])
        deliver = partial(self.network.transport(j)._hear, message)
        clock.after(moment - clock.now(), deliver)

    return tell


def check_exchanges(record: dict[int, list[Event]]) -> int:
    """Both sides count the same halves of the same snapshots, one exchange at a time; how many."""
    assert not ledger_faults(record)
    mixes = {}
    for node, events in record.items():
        mixed = 0
        for version, event in enumerate(events):
            if isinstance(event, Mix):
                ((partner, share, theirs),) = event.takes
                assert share == 0.5 and partner != node
                assert event.own >= mixed, "two exchanges of a learner overlap"
                mixed = version + 1
                assert (node, partner, event.round) not in mixes
                mixes[node, partner, event.round] = (event.own, theirs)
    for (node, partner, number), (own, theirs) in mixes.items():
        assert mixes[partner, node, number] == (theirs, own)
    return len(mixes) // 2


def events_of(simulation: Simulation) -> dict[int, list[Event]]:
    return {node.index: node.events for node in simulation.nodes}


def check_dense(simulation: Simulation, record: dict[int, list[Event]], sgd: Sgd) -> None:
    """The weights are those of the record, evaluated by NumPy."""
    start = dict.fromkeys(record, Simulation(simulation.setting, Small()).mean().numpy())
    versions = dense.evaluate(record, start, small_gradient, oracle(sgd))
    final = np.array([versions[i][-1] for i in record])
    np.testing.assert_allclose(simulation.weights().numpy(), final, rtol=1e-10, atol=1e-12)


@given(st.data(), st.integers(2, 7), st.integers(0, 2**31))
@settings(max_examples=20)
def test_any_interleaving_is_a_run_of_atomic_averages(
    data: st.DataObject, learners: int, seed: int
) -> None:
    sgd = data.draw(st.sampled_from(SGDS))
    setting = a_setting(
        learners,
        seed=seed,
        sgd=sgd,
        pace=data.draw(st.integers(1, 3)),
        max_staleness=data.draw(st.sampled_from([1, 3, 64])),
        links=LinkTimes(
            latency=data.draw(st.sampled_from([0.0, 0.2])),
            bandwidth=data.draw(st.sampled_from([100.0, 1e4, float("inf")])),
            factors={1: data.draw(st.sampled_from([1.0, 8.0]))},
        ),
    )
    with mock.patch.object(SimulatedTransport, "tell", scrambled(seed)):
        simulation = Simulation(setting, Small(), record=True)
        simulation.run(steps=STEPS, seconds=LIMIT)
    assert simulation.clock.now() < LIMIT, "the run never ended"
    assert all(node.engine.complete for node in simulation.nodes)
    record = events_of(simulation)
    assert check_exchanges(record) > 0
    check_dense(simulation, record, sgd)


@given(st.integers(2, 7), st.integers(0, 2**31))
@settings(max_examples=8)
def test_mixing_alone_keeps_the_mean_and_brings_learners_together(learners: int, seed: int) -> None:
    setting = a_setting(learners, seed=seed, rate=0.0, sgd=Sgd())
    simulation = Simulation(setting, Small(), record=True)
    draws = torch.Generator().manual_seed(seed)
    for node in simulation.nodes:
        weights = node.engine.weights
        weights.copy_(torch.randn(weights.shape, generator=draws, dtype=weights.dtype))
    before, apart = simulation.mean().clone(), simulation.consensus()
    simulation.run(steps=STEPS, seconds=LIMIT)
    assert check_exchanges(events_of(simulation)) > 0
    torch.testing.assert_close(simulation.mean(), before, rtol=0, atol=1e-14)
    assert simulation.consensus() < apart


@pytest.mark.parametrize("latency", [0.0, 0.1])
@pytest.mark.parametrize("learners", [2, 3, 4, 7])
def test_all_ask_at_once(learners: int, latency: float) -> None:
    """Equal learners, equal links: every question meets others on its way, in every cycle."""
    for seed in range(4):
        setting = a_setting(
            learners,
            seed=seed,
            compute=ComputeTimes(seconds=1.0),
            links=LinkTimes(latency=latency),
        )
        simulation = Simulation(setting, Small(), record=True)
        simulation.run(steps=STEPS, seconds=LIMIT)
        assert simulation.clock.now() < 2 * STEPS, "learners waited for each other"
        # an exchange takes 4 latencies, so there is time for all; one of an odd number is left over
        assert check_exchanges(events_of(simulation)) >= 0.7 * STEPS * (learners // 2)


def test_a_slow_link_delays_its_own_exchanges_alone() -> None:
    """Of 16 learners one has a link 8 times slower: the others keep 95 % of their mixes."""
    slow, steps, mixes = 5, 60, {}
    for schedule in ("ring", "random-ring", "random-partner"):
        for factor in (1.0, 8.0):
            setting = Setting(
                strategy=strategy_called("adpsgd"),
                schedule=create(schedule, learners=16, seed=1),
                compute=ComputeTimes(seconds=0.5, spread="lognormal", deviation=0.1),
                links=LinkTimes(latency=0.001, bandwidth=1.25e9, factors={slow: factor}),
                model_bytes=164.6 * 2**20,
                rate=lambda _: 0.01,
            )
            simulation = Simulation(setting, Small())
            simulation.run(seconds=0.5 * steps)
            mixes[schedule, factor] = sum(
                node.engine.rounds for node in simulation.nodes if node.index != slow
            )
    kept = {
        schedule: mixes[schedule, 8.0] / mixes[schedule, 1.0]
        for schedule in ("ring", "random-ring", "random-partner")
    }
    assert kept["random-partner"] > 0.95, kept
    assert kept["ring"] < 0.5 and kept["random-ring"] < 0.5, kept


@pytest.mark.parametrize("queue", [QUEUE_SECONDS, math.inf])
def test_nobody_waits_for_the_refusals_of_a_slow_link(queue: float) -> None:
    """8 learners; a model needs 13 ms, on the slow link 106 ms: more than two gradients.

    Who asks the slow one while it sends to another waits for the answer, behind 10 ms of the
    snapshot or behind all of it, and is lost to the others meanwhile. So it does not tell those it
    refused that it is ready, while it is behind and asks by itself.
    """
    slow, mixes = 1, []
    for factor in (1.0, 8.0):
        setting = a_setting(
            8,
            seed=1,
            compute=ComputeTimes(seconds=0.04, spread="lognormal", deviation=0.05),
            links=LinkTimes(latency=3e-4, bandwidth=5e6, factors={slow: factor}, queue=queue),
            model_bytes=66256,
        )
        simulation = Simulation(setting, Small())
        simulation.run(seconds=4.0)
        mixes.append(sum(n.engine.rounds for n in simulation.nodes if n.index != slow))
    assert mixes[1] > 0.95 * mixes[0], mixes


@pytest.mark.parametrize("slow", [{0: 3.0, 1: 3.0}, {1: 1.3, 2: 1.6, 3: 1.9}])
def test_learners_that_are_all_behind_do_not_part(slow: dict[int, float]) -> None:
    """An exchange takes longer than a gradient, so everybody always wants one: no two never mix."""
    setting = a_setting(
        4,
        seed=1,
        compute=ComputeTimes(seconds=0.01, spread="lognormal", deviation=0.05),
        links=LinkTimes(latency=3e-4, bandwidth=5e6, factors=slow),
        model_bytes=66256,
        pace=1,
    )
    simulation = Simulation(setting, Small(), record=True)
    simulation.run(seconds=6.0)
    pairs = Counter(
        tuple(sorted((node, event.takes[0][0])))
        for node, events in events_of(simulation).items()
        for event in events
        if isinstance(event, Mix) and event.takes
    )
    assert len(pairs) == 6 and min(pairs.values()) > 0.05 * max(pairs.values()), pairs


@given(st.data(), st.integers(2, 6), st.integers(0, 2**31))
@settings(max_examples=12)
def test_pauses_leave_nothing_in_flight_and_resume(
    data: st.DataObject, learners: int, seed: int
) -> None:
    """A run that one learner stops, and the rest of it from what all saved."""
    setting = a_setting(learners, seed=seed, pace=data.draw(st.integers(1, 3)), max_staleness=8)
    states: dict[int, dict[str, Any]] = {}
    moments: dict[int, list[tuple[str, bool]]] = defaultdict(list)

    def save(node: Node) -> None:
        states[node.index] = copy.deepcopy(node.engine.state_dict())
        moments[node.index].append((node.engine.moment, node.engine.complete))

    first = Simulation(setting, Small(), record=True, on_pause=save)
    for _ in range(data.draw(st.integers(0, 3))):
        engine = first.nodes[data.draw(st.integers(0, learners - 1))].engine
        first.clock.after(data.draw(st.floats(0, 30)), engine.request_pause)
    stopper = first.nodes[data.draw(st.integers(0, learners - 1))].engine
    first.clock.after(data.draw(st.floats(0, 40)), stopper.request_stop)
    with mock.patch.object(SimulatedTransport, "tell", scrambled(seed)):
        first.run(steps=STEPS, seconds=LIMIT)
    assert first.clock.now() < LIMIT, "the run never ended"
    assert len(moments) == learners
    assert all(mine == moments[0] for mine in moments.values()), "all pause alike"
    names = [name for name, _ in moments[0]]
    assert names == sorted(names)
    check_dense(first, events_of(first), setting.sgd)

    again = Simulation(setting, Small(), record=True)
    for node in again.nodes:
        node.engine.load_state_dict(states[node.index])
    if not moments[0][-1][1]:
        again.run(steps=STEPS, seconds=LIMIT)
    assert all(node.engine.steps == STEPS for node in again.nodes)
    # both halves together are one run of the equation, momentum included
    record = {i: first.nodes[i].events + again.nodes[i].events for i in range(learners)}
    check_exchanges(record)
    check_dense(again, record, setting.sgd)


def test_who_never_answers_is_named() -> None:
    """Its communication thread hangs: the run ends instead of waiting for ever."""
    simulation = Simulation(a_setting(3), Small())
    for node in simulation.nodes:
        simulation.network.transport(node.index).timeout = 20.0
    heard = SimulatedTransport.heard

    def deaf(self: SimulatedTransport) -> list[Header]:
        return [] if self.rank == 1 else heard(self)

    with (
        mock.patch.object(SimulatedTransport, "heard", deaf),
        pytest.raises(ConnectionError, match=r"has not answered for 2\d s"),
    ):
        simulation.run(steps=100, seconds=LIMIT)


def test_draws_differ_by_seed_and_learner() -> None:
    def partners(seed: int) -> list[list[int]]:
        simulation = Simulation(a_setting(6, seed=seed), Small(), record=True)
        simulation.run(steps=STEPS, seconds=LIMIT)
        record = events_of(simulation)
        return [[e.takes[0][0] for e in record[i] if isinstance(e, Mix)] for i in record]

    assert partners(1) == partners(1)
    assert partners(1) != partners(2)
    assert all(len(set(mine)) > 2 for mine in partners(1))


def test_what_drawing_partners_cannot_do_is_refused() -> None:
    strategy, plan = strategy_called("adpsgd"), create("random-partner", learners=4)
    with pytest.raises(UserError, match="super-learners do not draw partners"):
        check(strategy, plan, learners=8, size=2)
    check(strategy, plan, learners=4, size=1)
    drop = partial(
        schedule_of, name="random-partner", nodes=4, seed=1, injection=Injection(drop=0.1)
    )
    with pytest.raises(UserError, match="no rounds"):
        drop(strategy)
    in_step = strategy_called("dpsgd")  # synchronous learners follow its rounds
    check(in_step, drop(in_step), learners=8, size=2)
