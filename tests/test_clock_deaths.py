"""Learners that die and come back in virtual time: the engine's own code agrees on who is left."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from unittest import mock

import dense
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_task import RATE, Small, oracle, small_gradient

from hadpsgd.decentralized.core.events import Join, Mix, Update, blocks_of, ledger_faults
from hadpsgd.decentralized.core.sgd import Sgd
from hadpsgd.decentralized.network.speeds import ComputeTimes, LinkTimes
from hadpsgd.decentralized.simulated.simulation import Setting, Simulation
from hadpsgd.decentralized.simulated.transport import SimulatedTransport
from hadpsgd.decentralized.strategies import registry
from hadpsgd.decentralized.strategies.registry import Choice
from hadpsgd.decentralized.topology.schedules import create
from hadpsgd.errors import UserError

MIB = 2**20


def simulate(
    schedule: str,
    learners: int,
    *,
    deaths: Mapping[int, float],
    returns: Mapping[int, float] | None = None,
    steps: int = 12,
    strategy: str = "adpsgd",
    momentum: float = 0.9,
    model_mib: float = 165.0,
) -> Simulation:
    """Learners that share their work; number 1 is slow, and so is the link of number 2."""
    setting = Setting(
        strategy=registry.create(Choice(strategy=strategy)),
        schedule=create(schedule, learners=learners, seed=3),
        compute=ComputeTimes(seconds=0.5, factors={1: 5.0}, spread="lognormal", deviation=0.1),
        links=LinkTimes(latency=1e-3, bandwidth=1.25e9, factors={2: 8.0}),
        sgd=Sgd(momentum=momentum),
        rate=lambda _: RATE,
        shared_steps=steps,
        model_bytes=model_mib * MIB,
        deaths=deaths,
        returns=returns or {},
    )
    simulation = Simulation(setting, Small(), record=True)
    simulation.run(seconds=1000)
    assert simulation.clock.now() < 1000, "the run never ended"
    return simulation


def check(simulation: Simulation, steps: int) -> None:
    """Every block once, no gradient lost, weights as the equation says, nobody mixes alone."""
    nodes = len(simulation.nodes)
    record = {node.index: node.events for node in simulation.nodes}
    assert not ledger_faults(record)
    done = Counter(block for events in record.values() for block in blocks_of(events))
    dying = set(simulation.setting.deaths)
    assert done.keys() == set(range(steps * nodes))
    assert set(done.values()) == {1}

    blocks = {
        (i, event.step): event.block
        for i, events in record.items()
        for event in events
        if isinstance(event, Update)
    }

    def gradient(learner: int, step: int, at: np.ndarray) -> np.ndarray:
        block = blocks[learner, step]
        assert block is not None
        return small_gradient(block % nodes, block // nodes, at)

    first = Simulation(simulation.setting, Small()).mean().numpy()
    versions = dense.evaluate(
        record, dict.fromkeys(record, first), gradient, oracle(simulation.setting.sgd)
    )
    final = np.array([versions[node.index][-1] for node in simulation.living])
    np.testing.assert_allclose(simulation.weights().numpy(), final, rtol=1e-9, atol=1e-11)

    # a mix moves both or neither, by the same snapshots: it leaves their mean
    halves = {
        (event.round, i, j): (share, event.own, version)
        for i, events in record.items()
        if i not in dying
        for event in events
        if isinstance(event, Mix)
        for j, share, version in event.takes
        if j not in dying
    }
    for (round_, i, j), (share, own, version) in halves.items():
        assert halves[round_, j, i] == (share, version, own)


def healed(simulation: Simulation, node: int, moment: float) -> float:
    """Seconds until the last of those that are left goes on without it."""
    firsts: dict[int, float] = {}
    for change in simulation.changes:
        if change.moment >= moment and node not in change.alive:
            firsts.setdefault(change.node, change.moment)
    others = {n.index for n in simulation.nodes} - set(simulation.setting.deaths)
    assert firsts.keys() >= others
    return max(firsts[i] for i in others) - moment


@pytest.mark.parametrize("schedule", ["ring", "random-ring"])
def test_128_learners_of_which_three_die_and_one_comes_back(schedule: str) -> None:
    """The lowest among them, who decides; one learner is slow, one link is."""
    deaths = {0: 0.8, 64: 0.8, 65: 1.3}
    simulation = simulate(schedule, 128, deaths=deaths, returns={64: 4.0}, steps=14, momentum=0.0)
    check(simulation, steps=14)
    assert simulation.dead == {0, 65}
    assert all(healed(simulation, node, moment) < 5 for node, moment in deaths.items())
    joins = [event for event in simulation.nodes[64].events if isinstance(event, Join)]
    assert len(joins) == 1
    after = simulation.nodes[64].events[simulation.nodes[64].events.index(joins[0]) :]
    assert any(isinstance(event, Update) for event in after)
    assert any(isinstance(event, Mix) and event.takes for event in after)


@given(st.data(), st.integers(3, 7))
@settings(max_examples=25, deadline=None)
def test_deaths_at_any_moment(data: st.DataObject, learners: int) -> None:
    schedule = data.draw(st.sampled_from(["ring", "random-ring", "pairwise"]))
    dying = data.draw(
        st.lists(st.integers(0, learners - 1), min_size=1, max_size=learners - 2, unique=True)
    )
    deaths = {node: data.draw(st.floats(0, 7)) for node in dying}
    returns = {
        node: moment + data.draw(st.floats(0.01, 4))
        for node, moment in deaths.items()
        if data.draw(st.booleans())
    }
    model = data.draw(st.sampled_from([0.01, 165.0]))
    simulation = simulate(schedule, learners, deaths=deaths, returns=returns, model_mib=model)
    check(simulation, steps=12)


@pytest.mark.parametrize("moment", [0.3, 2.15, 3.01])
def test_who_draws_partners_goes_on_without_the_dead(moment: float) -> None:
    simulation = simulate("random-partner", 8, deaths={0: moment, 5: moment + 0.05})
    check(simulation, steps=12)
    assert simulation.dead == {0, 5}
    mixes = [
        len([e for e in n.events if isinstance(e, Mix) and e.takes]) for n in simulation.living
    ]
    assert min(mixes) >= 5


def test_who_cannot_go_on_is_refused() -> None:
    with pytest.raises(UserError, match="strategy dpsgd cannot go on without a learner"):
        simulate("ring", 4, deaths={1: 1.0}, strategy="dpsgd")
    with pytest.raises(UserError, match="draw partners do not let others in"):
        simulate("random-partner", 4, deaths={1: 1.0}, returns={1: 2.0})
    with pytest.raises(UserError, match="who comes back has failed before"):
        simulate("ring", 4, deaths={1: 1.0}, returns={2: 2.0})


@pytest.mark.parametrize("schedule", ["ring", "random-ring", "pairwise"])
def test_who_is_idle_connects_to_those_alone_that_may_wait_for_it(schedule: str) -> None:
    """Weights go where there is a connection, and the higher learner makes it, as with TCP."""
    learners = 16
    connected: set[tuple[int, int]] = set()
    kept: defaultdict[tuple[int, int], list[Callable[[], None]]] = defaultdict(list)
    send, reach = SimulatedTransport._send, SimulatedTransport.reach

    def connect(pair: tuple[int, int]) -> None:
        connected.add(pair)
        for again in kept.pop(pair, []):
            again()

    def reaching(self: SimulatedTransport, j: int) -> None:
        reach(self, j)
        if j < self.rank:
            connect((self.rank, j))

    def sending(self: SimulatedTransport, j: int, *what: Any) -> None:
        pair = max(self.rank, j), min(self.rank, j)
        if self.rank > j:
            connect(pair)
        if pair in connected:
            send(self, j, *what)
        else:
            kept[pair].append(partial(send, self, j, *what))

    setting = Setting(
        strategy=registry.create(Choice(strategy="adpsgd")),
        schedule=create(schedule, learners=learners, seed=3),
        # who has few gradients to do is idle until those that are slow invite it
        compute=ComputeTimes(seconds=0.05, factors=dict.fromkeys(range(0, learners, 4), 40.0)),
        links=LinkTimes(latency=1e-3),
        rate=lambda _: RATE,
        elastic=True,
    )
    with (
        mock.patch.object(SimulatedTransport, "_send", sending),
        mock.patch.object(SimulatedTransport, "reach", reaching),
    ):
        simulation = Simulation(setting, Small())
        simulation.run(steps=3, seconds=100)
    assert simulation.clock.now() < 100, "somebody waited for a connection that nobody made"
    assert all(node.engine.complete for node in simulation.nodes)
    if schedule != "random-ring":  # there they have many partners in any case
        assert len(connected) == learners
