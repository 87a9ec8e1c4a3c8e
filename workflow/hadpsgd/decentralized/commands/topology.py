"""`hadpsgd topology`: what a mixing schedule does with so many learners, before anything runs."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from hadpsgd.columns import format_table
from hadpsgd.decentralized.topology import bounds, validation
from hadpsgd.decentralized.topology.mixing import MixingSchedule
from hadpsgd.decentralized.topology.schedules import SCHEDULES, create
from hadpsgd.files import atomic_file
from hadpsgd.numeric import real, whole

PAPER_PARAMETERS = 43_154_944
"""Parameters of the papers' acoustic model."""
MOST_LEARNERS, MOST_ROUNDS = 1024, 10_000
"""Matrices of learners by learners are looked at, one for each round."""
LEAST = 1e-9
"""Below it consensus of many learners is rounding."""
HEADER = (
    "schedule",
    "learners",
    "period",
    "symmetric",
    "doubly stochastic",
    "connected",
    "rho",
    "spectral gap",
    "rounds to {target:g}",
    "paper's bound",
    "MiB a round",
)
FOOTNOTE = """\
rho: factor to consensus a round (random schedules: in mean square). MiB a round: sent by a learner
for a model of {parameters:,} parameters of {bytes} bytes; complete is counted as an allreduce."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "--schedule", nargs="+", metavar="NAME", default=list(SCHEDULES), help="default: all"
    )
    parser.add_argument(
        "--learners",
        nargs="+",
        type=whole("--learners", least=2, most=MOST_LEARNERS),
        metavar="L",
        default=[8, 16, 32, 64],
        help="numbers of learners (8 16 32 64)",
    )
    parser.add_argument(
        "--seed", type=whole("--seed", least=0), default=1, help="seed of random schedules"
    )
    parser.add_argument(
        "--parameters",
        type=whole("--parameters", most=10**15),
        default=PAPER_PARAMETERS,
        help="parameters of the model",
    )
    parser.add_argument(
        "--bytes",
        type=whole("--bytes", most=1024),
        default=4,
        help="bytes of a parameter on the link",
    )
    parser.add_argument(
        "--target",
        type=real("--target", least=LEAST, most=0.999),
        default=1e-3,
        help="consensus wanted, of 1 at first",
    )
    parser.add_argument(
        "--show",
        type=whole("--show", most=MOST_ROUNDS),
        metavar="K",
        help="list who takes whom in K rounds",
    )
    parser.add_argument("--plot", type=Path, metavar="PNG", help="consensus against rounds")
    parser.add_argument(
        "--rounds", type=whole("--rounds", most=MOST_ROUNDS), default=100, help="rounds in the plot"
    )


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    schedules = [
        create(name, learners=count, seed=args.seed)
        for name in args.schedule
        for count in args.learners
    ]
    header = [title.format(target=args.target) for title in HEADER]
    rows = [_row(schedule, args) for schedule in schedules]
    print(format_table([header, *rows]))
    print(FOOTNOTE.format(parameters=args.parameters, bytes=args.bytes))
    if args.show:
        for schedule in schedules:
            print("\n".join(_listing(schedule, args.show)))
    if args.plot:
        plot(schedules, args.rounds, args.plot)
    return 0


def _row(schedule: MixingSchedule, args: argparse.Namespace) -> list[str]:
    rounds = validation.checked_rounds(schedule)
    mixing = bounds.measure(schedule, args.target)
    promised = bounds.paper_rounds(schedule, args.target)
    mebibytes = bounds.models_sent(schedule) * args.parameters * args.bytes / 2**20
    return [
        schedule.name,
        str(schedule.learners),
        "random" if schedule.period is None else str(schedule.period),
        _yes(schedule.symmetric),
        _yes(all(validation.stochastic_fault(current.matrix()) is None for current in rounds)),
        _yes(validation.consensus_fault(rounds, range(schedule.learners)) is None),
        f"{mixing.rho:.5f}",
        f"{mixing.gap:.5f}",
        str(mixing.rounds),
        "-" if promised is None else str(promised),
        f"{mebibytes:.1f}",
    ]


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _listing(schedule: MixingSchedule, rounds: int) -> list[str]:
    lines = []
    for k in range(rounds):
        lines.append(f"\n{schedule.name}, {schedule.learners} learners, round {k}:")
        for i in range(schedule.learners):
            takes = schedule.round(k).partners(i).items()
            lines.append(f"  {i:>3} takes " + "  ".join(f"{w:.3f} of {j}" for j, w in takes))
    return lines


def plot(schedules: list[MixingSchedule], rounds: int, path: Path) -> None:
    """Consensus against rounds, with the papers' bounds dashed, as a PNG.

    Raises:
        UserError: the file cannot be written.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 6), layout="constrained")
    steps = np.arange(rounds + 1)
    colours = {name: f"C{n}" for n, name in enumerate(SCHEDULES)}
    counts = sorted({schedule.learners for schedule in schedules})
    for schedule in schedules:
        curve = bounds.consensus_curve(schedule, rounds=rounds)
        place = counts.index(schedule.learners)
        axes.semilogy(
            steps,
            np.where(curve > 1e-12, curve, 1e-30),  # below is rounding
            label=f"{schedule.name}, {schedule.learners}",
            color=colours[schedule.name],
            linestyle=("-", "--", "-.", (0, (6, 2, 1, 2, 1, 2)))[place % 4],
            marker="os^Dv"[place % 5],
            markevery=(place, max(1, rounds // 12)),
            markersize=4,
        )
        promise = {"ring": bounds.ring_bound, "random-ring": bounds.random_ring_bound}
        if schedule.name in promise:
            values = [
                promise[schedule.name](learners=schedule.learners, rounds=int(k)) for k in steps
            ]
            axes.semilogy(steps, values, ":", color=colours[schedule.name], linewidth=1)
    axes.set(
        xlabel="rounds k",
        ylabel="consensus  ||T1 ... Tk - Tu||",
        title="Consensus (dotted: the papers' bounds)",
        ylim=(1e-8, 3),
    )
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize="small")
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
    pyplot.close(figure)
