"""`hadpsgd check-egs`: are training examples what was written?"""

from __future__ import annotations

import argparse
from pathlib import Path

from hadpsgd.egs.dataset import Dataset


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("egs", nargs="+", type=Path, help="folders of `hadpsgd egs`")


def run(args: argparse.Namespace) -> int:
    """Read every shard and compare its checksum; the first damaged one ends it."""
    for folder in args.egs:
        examples = Dataset(folder)
        examples.verify()
        print(f"{folder}: {len(examples)} subsequences, every checksum is right")
    return 0
