"""`hadpsgd egs`: training examples, or held-out ones, of a data set."""

from __future__ import annotations

import argparse
from pathlib import Path

from hadpsgd.config import load
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.egs.make import make


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--config", type=Path, required=True, help="config (YAML)")
    parser.add_argument("--data", type=Path, required=True, help="Kaldi data directory")
    parser.add_argument("--streams", type=Path, required=True, help="folder of <stream>/<set>/")
    parser.add_argument("--ali", type=Path, required=True, help="folder of ali.*.gz, final.mdl")
    parser.add_argument("--out", type=Path, required=True, help="folder of shards and meta.json")
    parser.add_argument(
        "--held-out",
        action="store_true",
        help="keep every frame: pad and mask the last subsequence instead of dropping it",
    )


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    config = load(args.config)
    data = DataDir.read(args.data, audio=False, text=False)
    make(config, data, args.streams, args.ali, args.out, held_out=args.held_out)
    return 0
