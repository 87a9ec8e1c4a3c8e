"""`hadpsgd mono`: a monophone GMM-HMM from a flat start, and its alignments."""

from __future__ import annotations

import argparse

from hadpsgd.gmm.mono import train_mono
from hadpsgd.gmm.pipeline import deltas
from hadpsgd.gmm.results import Front, Result
from hadpsgd.gmm.session import add_arguments, session


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    with session(args) as work:
        passes = work.passes(deltas(dim=work.space.dim))
        options = work.options.mono_stage
        seed = work.config.seed
        trained = train_mono(passes, work.words, work.lang, options, work.search, seed)
        model = trained.state.model
        outcome = work.aligned(passes, model)
        work.write(Result(trained.tree, model, Front()), outcome)
    return 0
