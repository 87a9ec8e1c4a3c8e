"""Pauses and the end among many learners: how long after they are asked for, in virtual time."""

from __future__ import annotations

import pytest
from simulated_task import Small

from hadpsgd.decentralized.core.events import ledger_faults
from hadpsgd.decentralized.network.speeds import ComputeTimes, LinkTimes
from hadpsgd.decentralized.simulated.simulation import Node, Setting, Simulation
from hadpsgd.decentralized.strategies import registry
from hadpsgd.decentralized.strategies.registry import Choice
from hadpsgd.decentralized.topology.schedules import create

ASKED = 3.0
SECONDS = 4.0
"""From asking to standing still: two to see that it is far, looks into the store, a decision."""


def setting(learners: int, schedule: str, *, elastic: bool = True) -> Setting:
    """165 MiB on 10 Gbit/s, half a second for a gradient; a slow learner and a slow link."""
    return Setting(
        strategy=registry.create(Choice(strategy="adpsgd")),
        schedule=create(schedule, learners=learners, seed=3),
        compute=ComputeTimes(seconds=0.5, factors={1: 5.0}, spread="lognormal", deviation=0.1),
        links=LinkTimes(latency=1e-3, bandwidth=1.25e9, factors={2: 8.0}),
        model_bytes=165 * 2**20,
        elastic=elastic,
    )


def ends(learners: int, schedule: str, *, elastic: bool = True) -> float:
    """Seconds from the wish to stop, of one learner, until all have ended."""
    simulation = Simulation(setting(learners, schedule, elastic=elastic), Small(), record=True)
    simulation.clock.after(ASKED, simulation.nodes[learners // 2].engine.request_stop)
    simulation.run(steps=1000, seconds=500)
    assert all(node.ended for node in simulation.nodes)
    assert len({node.engine.rounds for node in simulation.nodes}) == 1
    assert not ledger_faults({node.index: node.events for node in simulation.nodes})
    return max(node.ended for node in simulation.nodes) - ASKED


@pytest.mark.parametrize("learners", [8, 32, 128])
@pytest.mark.parametrize("schedule", ["ring", "random-ring"])
def test_all_stop_soon_however_many_there_are(learners: int, schedule: str) -> None:
    """At a slow learner, its gradient under way comes to its end first; at a slow link, a round."""
    waiting = 0.5 * 5 * 1.5 + 2.5
    assert ends(learners, schedule) < SECONDS + waiting


def test_without_the_store_news_go_round_the_ring() -> None:
    """What the bound is worth: one learner a round, at the pace of the slowest link."""
    assert ends(32, "ring", elastic=False) > 20


def test_all_pause_soon_and_go_on() -> None:
    moments: dict[int, float] = {}
    rounds: set[int] = set()

    def paused(node: Node) -> None:
        if not node.engine.over:
            moments[node.index] = simulation.clock.now()
            rounds.add(node.engine.rounds)

    simulation = Simulation(setting(128, "ring"), Small(), record=True, on_pause=paused)
    simulation.clock.after(ASKED, simulation.nodes[7].engine.request_pause)
    simulation.clock.after(ASKED + 10, simulation.nodes[90].engine.request_stop)
    simulation.run(steps=1000, seconds=500)
    assert len(moments) == 128 and len(rounds) == 1
    assert max(moments.values()) < ASKED + SECONDS + 0.5 * 5 * 1.5 + 2.5
    assert all(node.ended for node in simulation.nodes)
    assert min(node.engine.rounds for node in simulation.nodes) > rounds.pop()
    assert not ledger_faults({node.index: node.events for node in simulation.nodes})
