"""`hadpsgd simulate`: strategies among many learners in simulated time, in one process.

The engine runs as it does in processes; gradients and messages take the time given here. What is
trained is a small synthetic problem: speeds, staleness, waiting and bytes carry over to a real
model, losses show the shape of things only.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path

from hadpsgd.columns import format_table
from hadpsgd.decentralized.commands.topology import PAPER_PARAMETERS
from hadpsgd.decentralized.core.sgd import Sgd
from hadpsgd.decentralized.network.rounding import ROUNDINGS
from hadpsgd.decentralized.network.speeds import SPREADS, ComputeTimes, LinkTimes
from hadpsgd.decentralized.simulated import study
from hadpsgd.decentralized.strategies.strategy import UNROUNDED
from hadpsgd.errors import UserError

RUNS = (
    "ssgd",
    "d1d",
    "local",
    "dpsgd",
    "adpsgd",
    "adpsgd:pairwise",
    "adpsgd:random-partner",
    "rand",
    "hadpsgd",
)


LEAST, MOST = 1e-6, 1e9
"""Seconds of a gradient, and any number of the options."""
HIGHEST = {
    "learners": 4096,
    "super_learner": 4096,
    "batch": 100_000,
    "pace": 1000,
    "deviation": 100.0,
}
"""Of what is held in memory, or done again and again."""
GRADIENTS = 1e9
"""Of all learners of a run."""
_ABOVE_ZERO = (
    "seconds", "gigabits", "inside_gigabits", "model_mib", "batch", "rate", "super_learner", "pace",
)  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "--runs",
        nargs="+",
        metavar="STRATEGY[:SCHEDULE]",
        default=list(RUNS),
        help=f"default: {' '.join(RUNS)}",
    )
    parser.add_argument("--learners", type=int, default=16, help="learners (16)")
    parser.add_argument("--super-learner", type=int, default=4, help="learners of one (hadpsgd)")
    parser.add_argument("--seconds", type=float, default=120.0, help="simulated time")
    time_ = parser.add_argument_group("time")
    time_.add_argument("--compute", type=float, default=0.5, help="seconds of a gradient")
    time_.add_argument(
        "--slow", nargs="+", default=[], metavar="RANK:FACTOR", help="learners slower by a factor"
    )
    time_.add_argument("--spread", choices=SPREADS, default="lognormal", help="of gradient times")
    time_.add_argument("--deviation", type=float, default=0.1, help="standard deviation over mean")
    time_.add_argument("--gigabits", type=float, default=10.0, help="of a link, each way")
    time_.add_argument("--latency", type=float, default=5e-5, help="of a link, in seconds")
    time_.add_argument(
        "--slow-link", nargs="+", default=[], metavar="NODE:FACTOR", help="links slower by a factor"
    )
    time_.add_argument(
        "--inside-gigabits", type=float, help="of a link inside a super-learner (as --gigabits)"
    )
    faults = parser.add_argument_group("faults")
    faults.add_argument(
        "--die", nargs="+", default=[], metavar="RANK:SECOND", help="learners that fail, and when"
    )
    faults.add_argument(
        "--come-back", nargs="+", default=[], metavar="RANK:SECOND", help="and are started again"
    )
    time_.add_argument(
        "--model-mib", type=float, default=PAPER_PARAMETERS * 4 / 2**20, help="on the wire"
    )
    training = parser.add_argument_group("training")
    training.add_argument("--batch", type=int, default=32, help="of a learner")
    training.add_argument("--rate", type=float, default=0.2, help="learning rate")
    training.add_argument("--momentum", type=float, default=0.0, help="momentum of SGD (0)")
    training.add_argument("--pace", type=int, default=1, help="rounds of mixing a gradient")
    training.add_argument(
        "--max-staleness", type=int, default=64, help="mixes that a gradient may miss at most (64)"
    )
    training.add_argument(
        "--wire", choices=list(ROUNDINGS), default=UNROUNDED, help="weights on their way (adpsgd)"
    )
    training.add_argument(
        "--seed", type=int, default=1, help="seed of times, data and schedules (1)"
    )
    parser.add_argument(
        "--plot", type=Path, metavar="PNG", help="draw held-out losses against time"
    )


def factors(pairs: list[str], option: str, count: int) -> dict[int, float]:
    """RANK:FACTOR pairs, or others of a rank and a number.

    Raises:
        UserError: not such a pair, or no such rank.
    """
    found: dict[int, float] = {}
    for pair in pairs:
        rank, _, factor = pair.partition(":")
        try:
            found[int(rank)] = float(factor)
        except ValueError:
            raise UserError(f"{option} takes RANK:NUMBER, not '{pair}'") from None
        if not 0 <= int(rank) < count:
            raise UserError(f"{option}: there are ranks 0 to {count - 1}, not {rank}")
    return found


def check_numbers(args: argparse.Namespace) -> None:
    """Nothing is computed for ever, or overflows.

    Raises:
        UserError: a number that no simulation ends with.
    """
    inside = args.inside_gigabits
    args.inside_gigabits = args.gigabits if inside is None else inside
    for name in _ABOVE_ZERO:
        if not getattr(args, name) > 0:
            raise UserError(f"--{name.replace('_', '-')} is above 0")
    if not args.compute >= LEAST:
        raise UserError(f"--compute is {LEAST:g} s at least")
    for name, number in vars(args).items():
        most = HIGHEST.get(name, MOST)
        if isinstance(number, int | float) and not abs(number) <= most:  # nor nan
            raise UserError(f"--{name.replace('_', '-')} is {most:g} at most")
    gradients = args.learners * args.seconds / args.compute
    if gradients > GRADIENTS:
        what = f"{gradients:.2g} gradients: this takes years"
        raise UserError(what, fix="Take fewer --learners, --seconds, or a longer --compute")


def told(seconds: float | None) -> str:
    """How long it took the others to go on without one that died."""
    if seconds is None:
        return "each other learner parts with it by itself"
    if math.isfinite(seconds):
        return f"all others go on without it {seconds:.2f} s later"
    return "not all others go on without it by the end"


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    check_numbers(args)
    contest = study.Contest(
        learners=args.learners,
        seconds=args.seconds,
        compute=ComputeTimes(
            seconds=args.compute,
            factors=factors(args.slow, "--slow", args.learners),
            spread=args.spread,
            deviation=args.deviation,
            seed=args.seed,
        ),
        links=LinkTimes(
            latency=args.latency,
            bandwidth=args.gigabits * 1e9 / 8,
            factors=factors(args.slow_link, "--slow-link", args.learners),
        ),
        model_bytes=args.model_mib * 2**20,
        super_learner=args.super_learner,
        inside=LinkTimes(
            latency=args.latency,
            bandwidth=args.inside_gigabits * 1e9 / 8,
        ),
        deaths=factors(args.die, "--die", args.learners),
        returns=factors(args.come_back, "--come-back", args.learners),
        batch=args.batch,
        rate=args.rate,
        sgd=Sgd(momentum=args.momentum),
        pace=args.pace,
        max_staleness=args.max_staleness,
        wire=args.wire,
        seed=args.seed,
    )
    for name in args.runs:
        study.contestant(name, contest)  # refuse all that cannot work before any work
    outcomes = []
    for name in args.runs:
        begin = time.monotonic()
        outcomes.append(study.play(name, contest))
        took = time.monotonic() - begin
        print(f"{name}: {args.seconds:g} simulated seconds in {took:.1f} s", file=sys.stderr)
    title = f"{args.learners} learners, {args.seconds:g} simulated seconds"
    print(format_table([list(study.HEADER), *(study.row(o, args.seconds) for o in outcomes)]))
    print("gradients/s: of all learners. updates/s: of a node. waiting: share of the time.")
    for outcome in outcomes:
        for node, seconds in sorted(outcome.healed.items()):
            print(f"{outcome.name}: node {node} fails; {told(seconds)}")
    if args.plot:
        study.plot({title: outcomes}, args.plot)
    return 0
