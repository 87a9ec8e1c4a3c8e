"""`hadpsgd decode-gmm`: lattices of a data set from a GMM-HMM."""

from __future__ import annotations

import argparse
from pathlib import Path

from hadpsgd import config
from hadpsgd.decoding.decode import Work, decode
from hadpsgd.decoding.gmm import GmmScorer
from hadpsgd.decoding.network import read_data
from hadpsgd.decoding.search import Searcher


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the stage."""
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True, help="final.mdl")
    parser.add_argument("--graph", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--feats", type=Path, help="scp of features (default: DATA/feats.scp)")
    parser.add_argument("--cmvn", type=Path, help="scp of statistics by speaker")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--lda", type=Path, help="final.mat, applied to spliced frames")
    shape.add_argument("--deltas", action="store_true", help="add deltas and delta-deltas")
    parser.add_argument("--context", type=int, default=3, help="frames spliced on each side")
    parser.add_argument(
        "--transforms", type=Path, nargs="+", default=[], help="archives of fMLLR transforms"
    )
    parser.add_argument("--acoustic-scale", type=float, help="instead of decoding.acoustic_scale")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=0, help="processes (default: decoding.jobs)")


def run(args: argparse.Namespace) -> int:
    """Write OUT/lat.1.gz, what scoring needs of the graph, and decode.json."""
    options = config.load(args.config).decoding
    if args.acoustic_scale:
        options = options.model_copy(update={"acoustic_scale": args.acoustic_scale})
    data = read_data(args.data)
    scorer = GmmScorer(
        args.model,
        args.feats or args.data / "feats.scp",
        {utterance.id: utterance.speaker for utterance in data},
        args.cmvn,
        args.lda,
        args.context,
        args.deltas,
        tuple(args.transforms),
    )
    work = Work(Searcher(args.graph, options), scorer)
    decode(work, scorer.utterances(), args.out, args.jobs or options.jobs, options.max_failed)
    return 0
