"""`hadpsgd mono`: a monophone GMM-HMM from a flat start, and its alignments."""

from __future__ import annotations

import argparse

from hadpsgd.gmm.mono import train_mono
from hadpsgd.gmm.pipeline import deltas
from hadpsgd.gmm.results import Front, Result
from hadpsgd.gmm.session import add_arguments, session
from hadpsgd.gmm.subsets import chosen


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    with session(args) as work:
        options = work.options.mono_stage
        pipeline = deltas(dim=work.space.dim)
        numbers = chosen(work.space, shortest=options.shortest, utterances=options.utterances)
        with work.part(numbers) as part:
            seed = work.config.seed
            passes = part.passes(pipeline)
            trained = train_mono(
                passes, part.words, work.lang, options, work.search, work.checkpoint, seed
            )
        if part is not work:
            work.compile(trained)
        model = trained.state.model
        outcome = work.aligned(work.passes(pipeline), model)
        work.write(Result(trained.tree, model, Front()), outcome)
    return 0
