"""The loss of 8 learners of which 50 are killed and replaced, beside a run that nobody disturbs.

    python benchmarks/fifty_deaths.py --out docs/benchmarks/fifty-failures.png

AD-PSGD on the ring, the small BLSTM of the tests; each learner is a process, killed with SIGKILL.
Losses are those of the minibatches, from a replay of the runs' records; a death costs a learner the
gradients that nobody had heard of yet, and its momentum.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import matplotlib
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
matplotlib.use("Agg")

from crews import Crew, Plan, check, check_bits, records, replayed
from matplotlib import pyplot as plt

from hadpsgd.decentralized.core.events import Join, Update

LEARNERS, SMOOTH = 8, 15
Curves = tuple[list[np.ndarray], list[int]]
"""(losses of each learner, step by step; steps at which newcomers joined)"""


def race(folder: Path, deaths: int, steps: int) -> Curves:
    """A run with so many deaths, or of so many steps."""
    plan = Plan(folder, learners=LEARNERS, steps=steps or 10**6, pause=0.05)
    crew = Crew(plan)
    try:
        for rank in range(LEARNERS):
            crew.start(rank)
        if deaths:
            crew.under_way()
            crew.kill_and_replace(deaths)
            crew.wait_until_all_mix()
            crew.enough()
        results = crew.results(300.0)
    finally:
        crew.close()
    check(plan, results)
    learners, losses = replayed(plan)
    check_bits(results, learners)
    joins = [
        sum(isinstance(before, Update) for before in events[:place])
        for events in records(plan).values()
        for place, event in enumerate(events)
        if isinstance(event, Join)
    ]
    return [np.array(row) for row in losses.values()], joins


def mean(curves: list[np.ndarray]) -> np.ndarray:
    """Over the learners and a few steps."""
    length = min(map(len, curves))
    row = np.mean([curve[:length] for curve in curves], axis=0)
    return np.convolve(row, np.ones(SMOOTH) / SMOOTH, mode="valid")


def main() -> None:
    """Both runs, and the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--deaths", type=int, default=50)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        broken, joins = race(Path(scratch, "broken").absolute(), args.deaths, 0)
        whole, _ = race(Path(scratch, "whole").absolute(), 0, min(map(len, broken)))
    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    for name, curves in (("nobody is killed", whole), (f"{len(joins)} newcomers", broken)):
        axes.plot(mean(curves), label=name)
        print(f"{name}: loss {mean(curves)[-1]:.4f} after {min(map(len, curves))} steps")
    floor = axes.get_ylim()[0]
    axes.plot(joins, [floor] * len(joins), "|", color="black", markersize=12, label="one joins")
    axes.set(xlabel="step of a learner", ylabel=f"training loss, mean of {SMOOTH} steps")
    axes.legend()
    figure.savefig(args.out, dpi=110)


if __name__ == "__main__":
    main()
