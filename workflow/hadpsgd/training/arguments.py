"""Arguments that `hadpsgd train` and `hadpsgd launch` share."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_training(parser: argparse.ArgumentParser) -> None:
    """Which run of which config, its examples, and its results."""
    parser.add_argument("--config", type=Path, required=True, help="YAML config")
    # torchrun takes `--run` for a part of its own `--run-path`
    parser.add_argument("--run-id", "--run", dest="run", required=True, help="its id or key")
    parser.add_argument("--egs", type=Path, required=True, help="training examples")
    parser.add_argument(
        "--initial",
        type=Path,
        metavar="FINAL.PT",
        help="model that a stage of training.stages goes on from",
    )
    parser.add_argument("--dev-egs", type=Path, required=True, help="held-out examples")
    parser.add_argument("--out", type=Path, required=True, help="folder for final.pt and metrics")
