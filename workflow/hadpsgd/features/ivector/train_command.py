"""`hadpsgd ivector-train`: the i-vector extractor, trained on a UBM's statistics."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from hadpsgd.config import Config, load
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.errors import UserError
from hadpsgd.features.frontend import Frontend, Inputs
from hadpsgd.features.ivector import extractor, statistics, training, ubm
from hadpsgd.features.ivector.checkpoint import Checkpoint
from hadpsgd.files import file_name
from hadpsgd.parallel import add_jobs
from hadpsgd.progress import tracked


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--config", type=Path, required=True, help="config (YAML)")
    parser.add_argument("--data", type=Path, required=True, help="Kaldi data directory")
    parser.add_argument("--feats", type=Path, required=True, help="folder of its MFCC")
    parser.add_argument("--ubm", type=Path, required=True, help="folder of final.dubm")
    parser.add_argument("--out", type=Path, required=True, help="folder of final.ie")
    add_jobs(parser, "processes, threads")


def train_extractor(
    config: Config, data: DataDir, *, feats: Path, ubm_folder: Path, out: Path, jobs: int
) -> list[float]:
    """Write final.ie, and copies of what it needs beside it; returns the auxiliary function.

    The auxiliary function is a frame's (divided by the scaled count), at the beginning of every
    iteration; Kaldi logs the same. After a kill it goes on with the iterations that are not done.

    Raises:
        UserError: features are missing or do not fit the UBM.
    """
    options = config.features.ivector
    frontend = Frontend.read(ubm_folder)
    model = ubm.read(ubm_folder / "final.dubm")
    inputs = Inputs(data, feats, frontend, config.features.max_skipped.of(data.path.name))
    check_dim(inputs, model)
    out.mkdir(parents=True, exist_ok=True)
    checkpoint = Checkpoint(out.parent / f".{file_name(out.name)}.checkpoint")
    spool = statistics.Spool(out / ".statistics.tmp", gaussians=len(model), dim=model.dim)
    try:
        scatter = np.zeros((len(model), model.dim, model.dim))
        for piece, part in statistics.of_utterances(inputs, model, options, jobs, scatter=True):
            scatter += part if part is not None else 0.0
            for _, stats in piece:
                spool.append(stats)
        min_count = training.MIN_COUNT * options.posterior_scale
        found, history = checkpoint.begin(
            training.initial(model, dim=options.dim, seed=config.seed),
            scatter,
            f"{options.iterations} {min_count}",
        )
        left = range(len(history), options.iterations)
        for iteration in tracked(left, len(left), what="ivector-train", unit="iterations"):
            sums = training.expect(found, spool, scatter)
            history.append(sums.auxf / sums.gamma.sum())
            print(
                f"ivector-train: iteration {iteration + 1}, auxiliary function a frame "
                f"{history[-1]:.4f}",
                file=sys.stderr,
            )
            found = training.update(found, sums, scatter, min_count)
            checkpoint.save(found, history)
    finally:
        spool.close()
    frontend.write(out)
    ubm.write(out / "final.dubm", model)
    extractor.write(out / "final.ie", found)
    checkpoint.remove()
    return history


def check_dim(inputs: Inputs, model: ubm.DiagGmm) -> None:
    """Refuse features of another dimension than the UBM's.

    Raises:
        UserError: they are.
    """
    dim = inputs[inputs.utterances[0]].shape[1]
    if dim != model.dim:
        raise UserError(
            f"features of {dim} dimensions and a UBM of {model.dim}",
            fix="Give the transform that the UBM was trained with",
        )


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    config = load(args.config)
    data = DataDir.read(args.data, audio=False, text=False)
    with threadpool_limits(args.jobs):
        train_extractor(
            config, data, feats=args.feats, ubm_folder=args.ubm, out=args.out, jobs=args.jobs
        )
    return 0
