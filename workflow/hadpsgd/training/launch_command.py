"""`hadpsgd launch`: start all ranks of a training run, here or over the hosts of a Slurm job."""

from __future__ import annotations

import argparse
from pathlib import Path

from hadpsgd.config import load, run_of
from hadpsgd.numeric import whole
from hadpsgd.training.arguments import add_training
from hadpsgd.training.hosts import run_node
from hadpsgd.training.launch import launch
from hadpsgd.training.launched import Launch


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_training(parser)
    parser.add_argument("--logs", type=Path, help="folder of the ranks' logs; OUT/logs without it")
    parser.add_argument(
        "--restarts",
        type=whole("--restarts", least=0),
        default=10,
        help="failed ranks to start again (10)",
    )
    parser.add_argument(
        "--wait",
        action="store_true",
        help="wait for another launch of the run; without, refused if it goes on for 10 s",
    )
    parser.add_argument(
        "--accept-divergence",
        action="store_true",
        help="take it for a result that the run diverges: summary.json says so, and the status "
        "is 0; a failure without",
    )
    parser.add_argument(
        "--node", action="store_true", help="start this host's ranks only (srun calls this)"
    )


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say; 75 asks to be run again (requeued)."""
    config = load(args.config)
    wanted = Launch(
        config_file=args.config,
        config=config,
        run_id=run_of(config, args.run).id,
        egs=args.egs,
        dev_egs=args.dev_egs,
        initial=args.initial,
        out=args.out,
        logs=args.logs or args.out / "logs",
        restarts=args.restarts,
        wait=args.wait,
        accept_divergence=args.accept_divergence,
    )
    return run_node(wanted) if args.node else launch(wanted)
