"""`hadpsgd cost`: hours, memory, disk and money of a whole config, stage by stage.

Nothing is run or read but the config (docs/cost.md).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from hadpsgd.columns import format_table
from hadpsgd.config import load
from hadpsgd.errors import UserError
from hadpsgd.numeric import real
from hadpsgd.planning.amounts import Amounts, amounts
from hadpsgd.planning.cluster import check
from hadpsgd.planning.cost import GIB, Machines, Row, cost, disk, shown, total
from hadpsgd.planning.papers import ETHERNET
from hadpsgd.planning.pieces import measured

CORE_PRICE, GPU_PRICE = 0.05, 2.5
"""Of an hour, in the same money; assumed: what large clouds ask for on demand, roughly."""
UNKNOWN = "how much speech there is, nobody said"
FIX = "Give --hours-of-speech"


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--config", type=Path, required=True, help="what is to be run")
    parser.add_argument(
        "--hours-of-speech",
        type=real("--hours-of-speech", above=True),
        help="hours of training speech; else as the config says",
    )
    parser.add_argument("--cores", type=int, default=16, help="of all hosts together (16)")
    parser.add_argument("--nodes", type=int, default=1, help="hosts with GPUs (1)")
    parser.add_argument("--gpus", type=int, default=0, help="of a node; 0: trained on cores (0)")
    parser.add_argument(
        "--gpu-speed", type=float, default=1.0, help="of a GPU, over the papers' V100 (1)"
    )
    parser.add_argument(
        "--bandwidth", type=float, default=ETHERNET, help="bytes a second between nodes (12.5e9)"
    )
    parser.add_argument(
        "--core-price", type=float, default=CORE_PRICE, help=f"of a core's hour ({CORE_PRICE})"
    )
    parser.add_argument(
        "--gpu-price", type=float, default=GPU_PRICE, help=f"of a GPU's hour ({GPU_PRICE})"
    )


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    check("--cores", args.cores)
    check("--nodes", args.nodes)
    check("--gpus", args.gpus, zero=True)
    check("--gpu-speed", args.gpu_speed)
    check("--bandwidth", args.bandwidth)
    for name in ("core_price", "gpu_price"):
        check(f"--{name.replace('_', '-')}", getattr(args, name), zero=True)
    config = load(args.config)
    speech = amounts(config, args.hours_of_speech)
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
    print("\n".join(report(rows, speech, gib, prices=prices)))
    return 0


def report(
    rows: Sequence[Row], speech: Amounts, gib: float, *, prices: tuple[float, float]
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
    return [
        f"{shown(speech.train)} hours of training speech, {shown(speech.test)} to decode "
        f"({speech.source}); {shown(gib)} GiB of disk.",
        "",
        format_table(cells),
        "",
        f"Measured on {measured().machine}. Stages one after the other; money at {prices[0]:g} "
        f"an hour of a core, {prices[1]:g} of a GPU. Without n-grams and graphs.",
    ]
