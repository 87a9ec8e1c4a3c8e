"""Strategies in simulated time, 16 and 64 learners: equal, with a straggler, with a slow link.

    python benchmarks/simulated_time.py --out docs/benchmarks

writes docs/benchmarks/simulated-time.md and its pictures. Everything is seeded; nothing is timed
on this machine. What is trained is the small synthetic problem of `hadpsgd simulate`.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

from hadpsgd.decentralized.commands.simulate import RUNS
from hadpsgd.decentralized.network.speeds import ComputeTimes, LinkTimes
from hadpsgd.decentralized.simulated.study import HEADER, Contest, Outcome, play, plot, row
from hadpsgd.files import write_text

SECONDS = 20.0
COMPUTE = 0.5
MODEL_BYTES = 43_154_944 * 4
EQUAL = Contest(
    learners=16,
    seconds=SECONDS,
    compute=ComputeTimes(seconds=COMPUTE, spread="lognormal", deviation=0.1),
    links=LinkTimes(latency=5e-5, bandwidth=10e9 / 8),
    model_bytes=MODEL_BYTES,
    super_learner=4,
)
SCENARIOS = {
    "equal learners": EQUAL,
    "learner 3 is 5x slower": replace(EQUAL, compute=replace(EQUAL.compute, factors={3: 5.0})),
    "the link of node 1 is 8x slower": replace(EQUAL, links=replace(EQUAL.links, factors={1: 8.0})),
}
INTRODUCTION = f"""\
# Strategies in simulated time

**With one learner 5x slower, adpsgd, rand and random partners go on at their own pace; ssgd, d1d,
dpsgd and local fall to the slow one's. Of hadpsgd the super-learner with the slow member falls, the
others do not.**

Made by `python benchmarks/simulated_time.py --out docs/benchmarks`; no machine decides these
numbers. The engine runs {{learners}} learners in one process with virtual time: a gradient takes
{COMPUTE} s (lognormal, 10 % deviation), a model is
{MODEL_BYTES / 2**20:.1f} MiB on links of 10 Gbit/s, one way {MODEL_BYTES * 8 / 10e9:.2f} s.
{SECONDS:.0f} s are simulated: too short for an average of local where a learner is 5x slower, and
for dpsgd's long ring to come to the pace of its slowest.
The problem is a small synthetic one, so speeds, staleness, waiting and bytes say something about
real runs; losses show shape only. hadpsgd has super-learners of 4, whose links to each other are as
fast as those between learners. ssgd's allreduce, and that inside a super-learner, go on beside the
backward pass (two thirds of a gradient's time), piece by piece, as real ones do.

- gradients/s: of all learners; updates/s: of a node (learner or super-learner)
- staleness: mixes and updates that a gradient missed; waiting: share of the time in which a node
  waited for other nodes. Members of a super-learner also wait for the slowest of them, and for the
  last piece of their allreduce: that is not in this column, but in gradients/s
- consensus: root mean square distance of the nodes from their mean, at the end

What to look for, and where the papers say it (E: arXiv 2002.01119, T: 2110.11199):

- Equal learners: everything hides the model's way behind the gradient, but for ssgd's last piece
  and the averages of local (E: D1D overlaps its allreduce; AD-PSGD and RAND mix beside). hadpsgd
  makes fewer gradients: members of a super-learner wait for each other.
- One slow learner: ssgd, d1d, dpsgd and local fall to its speed, dpsgd's ring the later the longer
  it is; adpsgd, pairwise and rand keep theirs, and only the gradients of the slow one get stale (E:
  straggler avoidance of AD and RAND, not of D1D). Of hadpsgd, the super-learner with the slow
  member falls to its speed, and the others keep theirs.
- One slow link: asynchronous learners keep computing, but rounds of mixing come as slowly as the
  link, so consensus suffers: a slow computer does not stall RAND, a slow communicator does.
  Learners that draw partners (random-partner) share no rounds: the slow link delays its own
  exchanges alone, and the others keep their mixes.
- The random ring holds 64 learners closer together than the fixed one at the same bytes; super-
  learners, whose gradients are averaged, closer still.
"""


def markdown(outcomes: list[Outcome]) -> str:
    """The table of one scenario."""
    lines = ["| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER)]
    lines += ["| " + " | ".join(row(outcome, SECONDS)) + " |" for outcome in outcomes]
    return "\n".join(lines)


def main() -> None:
    """Simulate, write tables and pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--learners", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--jobs", type=int, default=1, help="processes; the results are the same")
    args = parser.parse_args()
    counts = " and ".join(map(str, args.learners))
    text = [INTRODUCTION.format(learners=counts)]
    with ProcessPoolExecutor(args.jobs) as pool:
        played = {
            (learners, title, name): pool.submit(play, name, replace(scenario, learners=learners))
            for learners in sorted(args.learners, reverse=True)
            for title, scenario in SCENARIOS.items()
            for name in RUNS
        }
        for learners in args.learners:
            panels: dict[str, list[Outcome]] = {}
            for title in SCENARIOS:
                panels[title] = [played[learners, title, name].result() for name in RUNS]
                print(f"{learners} learners, {title}: done", file=sys.stderr)
                text.append(f"## {learners} learners: {title}\n\n{markdown(panels[title])}\n")
            picture = args.out / f"simulated-time-{learners}.png"
            plot(panels, picture)
            text.append(f"![{learners} learners]({picture.name})\n")
    write_text(args.out / "simulated-time.md", "\n".join(text))


if __name__ == "__main__":
    main()
