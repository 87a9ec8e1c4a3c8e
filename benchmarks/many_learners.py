"""What grows with the number of learners: pauses, changes of the membership, what they ask for.

    python benchmarks/many_learners.py

All of it in virtual time: a gradient takes half a second, a model of 165 MiB goes over links of
10 Gbit/s, learner 1 is 5x slower, the link of learner 2 is 8x slower. Nothing is timed here but
the processor.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Mapping

from hadpsgd.decentralized.core.stores import LocalStore
from hadpsgd.decentralized.network.speeds import ComputeTimes, LinkTimes
from hadpsgd.decentralized.simulated.simulation import Setting, Simulation
from hadpsgd.decentralized.simulated.study import healed
from hadpsgd.decentralized.simulated.toy import Toy
from hadpsgd.decentralized.strategies import registry
from hadpsgd.decentralized.strategies.registry import Choice
from hadpsgd.decentralized.topology.schedules import create

ASKED = 3.0
SIZES = (8, 32, 128)


class CountingStore(LocalStore):
    """Counts calls: those of all learners together."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __getattribute__(self, name: str) -> object:
        """Names without an underscore are calls."""
        if not name.startswith("_") and name != "calls":
            self.calls[name] += 1
        return super().__getattribute__(name)


def setting(
    learners: int, schedule: str, *, elastic: bool = True, deaths: Mapping[int, float] | None = None
) -> Setting:
    """See the module."""
    return Setting(
        strategy=registry.create(Choice(strategy="adpsgd")),
        schedule=create(schedule, learners=learners, seed=3),
        compute=ComputeTimes(seconds=0.5, factors={1: 5.0}, spread="lognormal", deviation=0.1),
        links=LinkTimes(latency=1e-3, bandwidth=1.25e9, factors={2: 8.0}),
        model_bytes=165 * 2**20,
        elastic=elastic,
        deaths=deaths or {},
    )


def until_all_stop(what: Setting) -> float:
    """Seconds from one learner's wish until the last has ended."""
    simulation = Simulation(what, Toy(hidden=8))
    asks = simulation.nodes[len(simulation.nodes) // 2]
    simulation.clock.after(ASKED, asks.engine.request_stop)
    simulation.run(steps=10**6)
    return max(node.ended for node in simulation.nodes) - ASKED


def deaths(learners: int, schedule: str) -> tuple[float, float]:
    """Of the lowest and two others: seconds until all go on; calls a learner and second."""
    dying = {0: 2.0, learners // 2: 2.0, learners // 2 + 1: 4.0}
    simulation = Simulation(setting(learners, schedule, deaths=dying), Toy(hidden=8))
    store = simulation.members_store = CountingStore()
    for node in simulation.nodes:
        node.engine.mixer.exchange.membership.store = store  # type: ignore[attr-defined]
    simulation.run(seconds=8.0)
    slowest = max(healed(simulation, node) or 0.0 for node in dying)
    return slowest, store.calls.total() / learners / 8.0


def main() -> None:
    """Print the tables."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    begin = time.process_time()
    print("| schedule | learners | stop, in the store | stop, with the weights alone |")
    print("|---|---|---|---|")
    for schedule in ("ring", "random-ring"):
        for learners in SIZES:
            took = [
                until_all_stop(setting(learners, schedule, elastic=elastic))
                for elastic in (True, False)
            ]
            print(f"| {schedule} | {learners} | {took[0]:.1f} s | {took[1]:.1f} s |")
    print("\n| schedule | learners | all go on after a death | calls a learner and second |")
    print("|---|---|---|---|")
    for schedule in ("ring", "random-ring"):
        for learners in SIZES:
            seconds, calls = deaths(learners, schedule)
            print(f"| {schedule} | {learners} | {seconds:.2f} s | {calls:.1f} |")
    print(f"\n{time.process_time() - begin:.0f} s of the processor")


if __name__ == "__main__":
    main()
