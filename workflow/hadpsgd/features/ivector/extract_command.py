"""`hadpsgd ivector-extract`: i-vectors of a data set."""

from __future__ import annotations

import argparse
from pathlib import Path

from hadpsgd.config import load
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.errors import UserError
from hadpsgd.features.frontend import Frontend, Inputs
from hadpsgd.features.ivector import extractor, ubm
from hadpsgd.features.ivector.extract import extract
from hadpsgd.features.ivector.train_command import check_dim
from hadpsgd.parallel import add_jobs


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--config", type=Path, required=True, help="config (YAML)")
    parser.add_argument("--data", type=Path, required=True, help="Kaldi data directory")
    parser.add_argument("--feats", type=Path, required=True, help="folder of its MFCC")
    parser.add_argument(
        "--extractor",
        type=Path,
        required=True,
        help="folder of final.ie, final.dubm, final.mat, splice_opts (ours or Kaldi's)",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of i-vectors")
    add_jobs(parser)


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    config = load(args.config)
    data = DataDir.read(args.data, audio=False, text=False)
    model = extractor.read(args.extractor / "final.ie")
    background = ubm.read(args.extractor / "final.dubm")
    if (model.gaussians, model.feature_dim) != (len(background), background.dim):
        raise UserError(
            f"final.ie has {model.gaussians} Gaussians of {model.feature_dim} dimensions, "
            f"final.dubm {len(background)} of {background.dim}",
            where=args.extractor,
        )
    inputs = Inputs(
        data,
        args.feats,
        Frontend.read(args.extractor),
        config.features.max_skipped.of(data.path.name),
    )
    check_dim(inputs, background)
    extract(inputs, background, model, config.features.ivector, args.out, args.jobs)
    return 0
