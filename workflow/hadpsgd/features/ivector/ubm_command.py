"""`hadpsgd ubm`: the diagonal UBM of the i-vectors."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from hadpsgd.config import Config, load
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.features.frontend import Frontend, Inputs
from hadpsgd.features.ivector import ubm
from hadpsgd.features.ivector.ubm_training import train
from hadpsgd.features.pca import principal_components
from hadpsgd.kaldi_io import read
from hadpsgd.parallel import add_jobs
from hadpsgd.progress import tracked


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--config", type=Path, required=True, help="config (YAML)")
    parser.add_argument("--data", type=Path, required=True, help="Kaldi data directory")
    parser.add_argument("--feats", type=Path, required=True, help="folder of its MFCC")
    parser.add_argument(
        "--transform",
        type=Path,
        help="final.mat, or a folder of it and splice_opts "
        "(default: features.ivector.transform, or PCA)",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of final.dubm")
    add_jobs(parser, "threads")


def train_ubm(
    config: Config, data: DataDir, *, feats: Path, transform: Path | str | None, out: Path
) -> None:
    """Write final.dubm and what belongs to it: final.mat, splice_opts, cmvn_opts.

    Raises:
        UserError: features are missing or too few.
    """
    options = config.features.ivector
    frontend = _frontend(config, data, feats, transform)
    inputs = Inputs(data, feats, frontend, config.features.max_skipped.of(data.path.name))

    def passes() -> Iterator[Iterable[NDArray[np.float32]]]:
        while True:
            pass_ = tracked(inputs, inputs, what="ubm, this pass", unit="utterances")
            yield (features for _, features in pass_)

    model = train(options.ubm, passes(), config.seed)
    out.mkdir(parents=True, exist_ok=True)
    frontend.write(out)
    ubm.write(out / "final.dubm", model)


def _frontend(config: Config, data: DataDir, feats: Path, transform: Path | str | None) -> Frontend:
    options = config.features.ivector
    if transform and Path(transform).is_dir():
        return Frontend.read(Path(transform))
    frontend = Frontend(left=options.context, right=options.context)
    if transform:
        matrix = read(transform).astype(np.float32)
    else:
        matrix = principal_components(
            Inputs(data, feats, frontend, config.features.max_skipped.of(data.path.name)),
            options.input_dim,
        )
    return Frontend(left=options.context, right=options.context, transform=matrix)


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    config = load(args.config)
    data = DataDir.read(args.data, audio=False, text=False)
    with threadpool_limits(args.jobs):
        transform = args.transform or config.features.ivector.transform
        train_ubm(config, data, feats=args.feats, transform=transform, out=args.out)
    return 0
