"""`hadpsgd fmllr-apply`: speaker-adapted features from MFCC and FMLLR transforms."""

from __future__ import annotations

import argparse
from pathlib import Path

from hadpsgd.config import load
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.features.fmllr import apply, read_transforms
from hadpsgd.features.frontend import Frontend, Inputs
from hadpsgd.parallel import add_jobs


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--config", type=Path, required=True, help="config (YAML)")
    parser.add_argument("--data", type=Path, required=True, help="Kaldi data directory")
    parser.add_argument("--feats", type=Path, required=True, help="folder of its MFCC and CMVN")
    parser.add_argument(
        "--model",
        type=Path,
        required=True,
        help="folder of final.mat, splice_opts, cmvn_opts (ours or Kaldi's)",
    )
    parser.add_argument(
        "--trans", type=Path, required=True, help="folder of trans.*, an archive, or an scp"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of feats.scp")
    add_jobs(parser)


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    config = load(args.config)
    data = DataDir.read(args.data, audio=False, text=False)
    inputs = Inputs(
        data, args.feats, Frontend.read(args.model), config.features.max_skipped.of(data.path.name)
    )
    transforms = read_transforms(args.trans)
    apply(inputs, transforms, args.out, args.jobs)
    return 0
