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
from hadpsgd.numeric import add_real, add_whole

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


LEARNERS = 4096
"""At most."""
MOST = 1e9
"""Seconds, or times slower."""
GRADIENTS = 1e9
"""Of all learners of a run."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "--runs",
        nargs="+",
        metavar="STRATEGY[:SCHEDULE]",
        default=list(RUNS),
        help=f"default: {' '.join(RUNS)}",
    )
    add_whole(parser, "--learners", most=LEARNERS, default=16, help="learners (16)")
    add_whole(parser, "--super-learner", most=LEARNERS, default=4, help="learners of one (hadpsgd)")
    add_real(parser, "--seconds", above=True, default=120.0, help="simulated time")
    time_ = parser.add_argument_group("time")
    add_real(time_, "--compute", least=1e-6, default=0.5, help="seconds of a gradient")
    time_.add_argument(
        "--slow", nargs="+", default=[], metavar="RANK:FACTOR", help="learners slower by a factor"
    )
    time_.add_argument("--spread", choices=SPREADS, default="lognormal", help="of gradient times")
    add_real(time_, "--deviation", most=100.0, default=0.1, help="standard deviation over mean")
    add_real(time_, "--gigabits", above=True, default=10.0, help="of a link, each way")
    add_real(time_, "--latency", default=5e-5, help="of a link, in seconds")
    time_.add_argument(
        "--slow-link", nargs="+", default=[], metavar="NODE:FACTOR", help="links slower by a factor"
    )
    add_real(
        time_,
        "--inside-gigabits",
        above=True,
        help="of a link inside a super-learner (as --gigabits)",
    )
    faults = parser.add_argument_group("faults")
    faults.add_argument(
        "--die", nargs="+", default=[], metavar="RANK:SECOND", help="learners that fail, and when"
    )
    faults.add_argument(
        "--come-back", nargs="+", default=[], metavar="RANK:SECOND", help="and are started again"
    )
    add_real(
        time_,
        "--model-mib",
        above=True,
        default=PAPER_PARAMETERS * 4 / 2**20,
        help="on the wire",
    )
    training = parser.add_argument_group("training")
    add_whole(training, "--batch", most=100_000, default=32, help="of a learner")
    add_real(training, "--rate", above=True, default=0.2, help="learning rate")
    add_real(training, "--momentum", most=1.0, default=0.0, help="momentum of SGD (0)")
    add_whole(training, "--pace", most=1000, default=1, help="rounds of mixing a gradient")
    add_whole(
        training,
        "--max-staleness",
        least=0,
        default=64,
        help="mixes that a gradient may miss at most (64)",
    )
    training.add_argument(
        "--wire", choices=list(ROUNDINGS), default=UNROUNDED, help="weights on their way (adpsgd)"
    )
    add_whole(training, "--seed", least=0, default=1, help="seed of times, data and schedules (1)")
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
        if not 0 <= found[int(rank)] <= MOST:  # nor nan
            raise UserError(f"{option} takes numbers from 0 to {MOST:g}, not {factor}")
        if not 0 <= int(rank) < count:
            raise UserError(f"{option}: there are ranks 0 to {count - 1}, not {rank}")
    return found


def check_amount(args: argparse.Namespace) -> None:
    """Nothing is computed for ever.

    Raises:
        UserError: more gradients than anyone waits for.
    """
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
    check_amount(args)
    inside = args.gigabits if args.inside_gigabits is None else args.inside_gigabits
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
            bandwidth=inside * 1e9 / 8,
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
