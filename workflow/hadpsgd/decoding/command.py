"""`hadpsgd decode`: lattices of a data set from a trained network, or several together; with
--gmm from the GMM-HMM, too."""

from __future__ import annotations

import argparse
from pathlib import Path

from hadpsgd import config, diverged
from hadpsgd.decoding.decode import Work, decode
from hadpsgd.decoding.network import (
    NetworkScorer,
    add_device,
    add_models,
    why_any_diverged,
)
from hadpsgd.decoding.search import Searcher
from hadpsgd.decoding.with_gmm import WithGmm, add_gmm, with_gmm
from hadpsgd.parallel import add_jobs


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the stage."""
    parser.add_argument("--config", type=Path, required=True, help="config (YAML)")
    add_models(parser)
    parser.add_argument("--graph", type=Path, required=True, help="folder of HCLG.fst")
    parser.add_argument("--data", type=Path, required=True, help="Kaldi data directory of the set")
    parser.add_argument("--streams", type=Path, required=True, help="folder of <stream>/<set>/")
    parser.add_argument("--out", type=Path, required=True, help="folder of lattices to write")
    add_gmm(parser)
    add_jobs(parser)
    add_device(parser)


def run(args: argparse.Namespace) -> int:
    """Write OUT/lat.1.gz, what scoring needs of the graph, and decode.json."""
    if why := why_any_diverged(args.model):
        return diverged.leave(args.out, why=why, what="decoded")
    settings = config.load(args.config)
    options = settings.decoding
    searcher = Searcher(args.graph, options)
    networks = NetworkScorer(
        config=settings,
        models=tuple(args.model),
        data=args.data,
        streams=args.streams,
        device=args.device,
    )
    scorer = with_gmm(networks, args, settings)
    scorer.share()
    noted = {"gmm_share": scorer.gmm_share} if isinstance(scorer, WithGmm) else {}
    work = Work(searcher=searcher, make_scorer=scorer, noted=noted)
    limit = options.max_failed.of(args.data.name)
    decode(work, scorer.utterances(), args.out, jobs=args.jobs, max_failed=limit)
    return 0
