"""`hadpsgd decode-gmm`: lattices of a data set from a GMM-HMM."""

from __future__ import annotations

import argparse
from pathlib import Path

from hadpsgd import config
from hadpsgd.decoding.decode import Work, decode
from hadpsgd.decoding.gmm import GmmScorer, gmm_scale
from hadpsgd.decoding.search import Searcher
from hadpsgd.numeric import real
from hadpsgd.parallel import add_jobs


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the stage."""
    parser.add_argument("--config", type=Path, required=True, help="config (YAML)")
    parser.add_argument(
        "--model",
        type=Path,
        required=True,
        help="folder of final.mdl (final.alimdl, final.mat, splice_opts, cmvn_opts), ours or "
        "Kaldi's",
    )
    parser.add_argument("--graph", type=Path, required=True, help="folder of HCLG.fst")
    parser.add_argument("--data", type=Path, required=True, help="Kaldi data directory of the set")
    parser.add_argument("--feats", type=Path, required=True, help="folder of its MFCC and CMVN")
    parser.add_argument(
        "--trans",
        type=Path,
        help="folder of FMLLR transforms; without it final.alimdl decodes, where there is one",
    )
    parser.add_argument(
        "--acoustic-scale",
        type=real("--acoustic-scale", most=1000, above=True),
        help="instead of the config's",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of lattices to write")
    add_jobs(parser)


def run(args: argparse.Namespace) -> int:
    """Write OUT/lat.1.gz, what scoring needs of the graph, and decode.json."""
    settings = config.load(args.config)
    scale = {"acoustic_scale": args.acoustic_scale or gmm_scale(settings)}
    options = settings.decoding.model_copy(update=scale)
    skipped = settings.features.max_skipped.of(args.data.name)
    scorer = GmmScorer(
        folder=args.model,
        data=args.data,
        feats=args.feats,
        transforms=args.trans,
        max_skipped=skipped,
    )
    work = Work(searcher=Searcher(args.graph, options), make_scorer=scorer)
    limit = options.max_failed.of(args.data.name)
    decode(work, scorer.utterances(), args.out, jobs=args.jobs, max_failed=limit)
    return 0
