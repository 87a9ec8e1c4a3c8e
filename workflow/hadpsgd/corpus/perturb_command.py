"""`hadpsgd perturb`: training speech at other speeds, with noise and in rooms."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hadpsgd.config import load
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.corpus.perturb import Source, perturb
from hadpsgd.parallel import add_jobs


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--config", type=Path, required=True, help="config (YAML)")
    parser.add_argument("--data", type=Path, required=True, help="Kaldi data directory")
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        help="data directory to write; audio goes to ../../audio/<its name>",
    )
    add_jobs(parser)


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    config = load(args.config)
    allow_pipes = getattr(config.corpus, "allow_pipes", False)
    data, rate = DataDir.read(args.data), config.features.sample_rate
    made = perturb(
        Source(
            data=data,
            speeds=config.corpus.speeds,
            rate=rate,
            noise=config.corpus.noise,
            seed=config.seed,
            allow_pipes=allow_pipes,
        ),
        args.out,
        args.jobs,
    )
    hours = (made.seconds or 0.0) / 3600
    print(f"perturb: {made.utterances} utterances, {hours:.2f} h", file=sys.stderr)
    return 0
