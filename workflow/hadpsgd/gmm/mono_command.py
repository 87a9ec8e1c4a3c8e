"""`hadpsgd mono`: a monophone GMM-HMM from a flat start, and its alignments."""

from __future__ import annotations

import argparse
from pathlib import Path

from threadpoolctl import threadpool_limits

from hadpsgd.config import Config, load
from hadpsgd.config.alignment import Ladder, Mono
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.errors import UserError
from hadpsgd.features.frontend import Frontend
from hadpsgd.gmm.data import Lang, fill, word_ids
from hadpsgd.gmm.em import Passes, Search
from hadpsgd.gmm.mono import train_mono
from hadpsgd.gmm.pipeline import deltas
from hadpsgd.gmm.results import Front, Result, check_failures, write_folder
from hadpsgd.gmm.workspace import Workspace


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_arguments(parser)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What all commands that train or align take."""
    parser.add_argument("--config", type=Path, required=True, help="config (YAML)")
    parser.add_argument("--data", type=Path, required=True, help="Kaldi data directory")
    parser.add_argument("--feats", type=Path, required=True, help="folder of its MFCC and CMVN")
    parser.add_argument("--lang", type=Path, required=True, help="lang folder")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--jobs", type=int, help="processes (default: alignment.jobs)")


def own(config: Config) -> Mono | Ladder:
    """The settings of our own alignments.

    Raises:
        UserError: the config imports alignments.
    """
    if not isinstance(config.alignment, Mono | Ladder):
        raise UserError(
            f"alignment.kind is {config.alignment.kind}",
            where=config.name,
            fix="Training needs kind mono or ladder",
        )
    return config.alignment


def search_of(options: Mono | Ladder, lang: Lang) -> Search:
    """Beams and boosting of silence."""
    return Search(options.beam, options.retry_beam, options.boost_silence, lang.optional_silence)


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    config = load(args.config)
    options = own(config)
    data = DataDir.read(args.data, audio=False)
    lang = Lang(args.lang)
    jobs = args.jobs or options.jobs
    search = search_of(options, lang)
    with threadpool_limits(1), Workspace(args.out.parent) as space:
        fill(space, data, args.feats, Frontend(0, 0))
        words = list(word_ids(data, space.names, lang))
        passes = Passes(space, deltas(space.dim), jobs)
        trained = train_mono(passes, words, lang, options.mono_stage, search, config.seed)
        model = trained.state.model
        outcome = passes.align(model, search)
        check_failures(outcome, len(space), options.max_failed, args.data)
        sums = passes.accumulate(model)
        occupancy = model.mixtures.per_pdf(sums.occupancy)
        result = Result(trained.tree, model, Front(), occupancy)
        write_folder(args.out, result, space, outcome, args.lang / "phones.txt")
    return 0
