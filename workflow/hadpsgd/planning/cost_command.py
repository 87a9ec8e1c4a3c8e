"""`hadpsgd cost`: hours, memory, disk and money of a whole config, stage by stage.

Nothing is run; of data directories tables are read, or the headers of audio (docs/cost.md).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from hadpsgd.columns import format_table
from hadpsgd.config import load
from hadpsgd.errors import UserError
from hadpsgd.numeric import add_real, add_whole
from hadpsgd.planning.amounts import Amounts, amounts
from hadpsgd.planning.cluster import MOST_BANDWIDTH
from hadpsgd.planning.cost import GIB, Machines, Row, cost, disk, shown, total
from hadpsgd.planning.papers import ETHERNET
from hadpsgd.planning.pieces import measured
from hadpsgd.progress import counted

CORE_PRICE, GPU_PRICE = 0.05, 2.5
"""Of an hour, in the same money; assumed: what large clouds ask for on demand, roughly."""
MACHINES = 100_000_000
"""Cores or hosts."""
UNKNOWN = "how much speech there is, nobody said"
FIX = "Give --hours-of-speech, or make utt2dur or reco2dur where wav.scp has commands"


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--config", type=Path, required=True, help="what is to be run")
    add_real(
        parser,
        "--hours-of-speech",
        above=True,
        help="hours of training speech; else as the config says",
    )
    add_whole(parser, "--cores", most=MACHINES, default=16, help="of all hosts together (16)")
    add_whole(parser, "--nodes", most=MACHINES, default=1, help="hosts with GPUs (1)")
    add_whole(
        parser, "--gpus", least=0, most=1024, default=0, help="of a node; 0: trained on cores (0)"
    )
    add_real(
        parser,
        "--gpu-speed",
        least=1e-3,
        most=1e6,
        default=1.0,
        help="of a GPU, over the papers' V100 (1)",
    )
    add_real(
        parser,
        "--bandwidth",
        least=1.0,
        most=MOST_BANDWIDTH,
        default=ETHERNET,
        help="bytes a second between nodes (12.5e9)",
    )
    add_real(parser, "--core-price", default=CORE_PRICE, help=f"of a core's hour ({CORE_PRICE})")
    add_real(parser, "--gpu-price", default=GPU_PRICE, help=f"of a GPU's hour ({GPU_PRICE})")


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    config = load(args.config)
    speech = amounts(config, args.hours_of_speech, headers=True)
    if speech is None:
        raise UserError(UNKNOWN, where=args.config, fix=FIX)
    machines = Machines(
        cores=args.cores,
        nodes=args.nodes,
        gpus=args.gpus,
        speed=args.gpu_speed,
        bandwidth=args.bandwidth,
    )
    rows = cost(config, machines, train=speech.train, test=speech.test)
    gib = disk(config, train=speech.train) / GIB
    prices = args.core_price, args.gpu_price
    print("\n".join(report(rows, speech, gib, machines, prices=prices)))
    return 0


def report(
    rows: Sequence[Row],
    speech: Amounts,
    gib: float,
    machines: Machines,
    *,
    prices: tuple[float, float],
) -> list[str]:
    """What is printed, line by line."""
    cells = [("stage", "core h", "GPU h", "hours", "memory GiB", "money", "rests on")]
    for row in (*rows, total(rows)):
        money = row.core_hours * prices[0] + row.gpu_hours * prices[1]
        cells.append(
            (
                row.stage,
                shown(row.core_hours),
                shown(row.gpu_hours),
                shown(row.hours),
                shown(row.gib),
                shown(money),
                row.rests_on,
            )
        )
    gpus = f" and {counted(machines.gpus * machines.nodes, 'GPU')}" if machines.gpus else ""
    return [
        f"{shown(speech.train)} hours of training speech, {shown(speech.test)} to decode "
        f"({speech.source}); {shown(gib)} GiB of disk.",
        "",
        format_table(cells),
        "",
        f"Measured on {measured().machine}. Stages one after the other on "
        f"{counted(machines.cores, 'core')}{gpus}; money at {prices[0]:g} "
        f"an hour of a core, {prices[1]:g} of a GPU. Without n-grams and graphs.",
    ]
