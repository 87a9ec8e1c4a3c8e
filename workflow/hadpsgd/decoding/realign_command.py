"""`hadpsgd realign`: align a data set with a trained network."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from hadpsgd.config import load
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.decoding.network import NetworkScorer, add_device
from hadpsgd.decoding.realign import Aligner, Places, Spoken, compiler_of, realign
from hadpsgd.features.fusion import Fusion
from hadpsgd.gmm.data import Lang, word_ids
from hadpsgd.parallel import add_jobs


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--config", type=Path, required=True, help="config (YAML)")
    parser.add_argument("--model", type=Path, required=True, help="final.pt")
    parser.add_argument("--lang", type=Path, required=True, help="lang folder")
    parser.add_argument(
        "--ali", type=Path, required=True, help="folder of tree and final.mdl (ours or Kaldi's)"
    )
    parser.add_argument("--data", type=Path, required=True, help="Kaldi data directory")
    parser.add_argument("--streams", type=Path, required=True, help="folder of <stream>/<set>/")
    parser.add_argument("--out", type=Path, required=True, help="folder of alignments to write")
    add_jobs(parser)
    add_device(parser)


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    config = load(args.config)
    options, limit = config.realign, config.alignment.max_failed.of(args.data.name)
    data, lang = DataDir.read(args.data, audio=False), Lang(args.lang)
    names = Fusion(config, args.streams, data).utterances
    scorer = NetworkScorer(
        config=config,
        models=(args.model,),
        data=args.data,
        streams=args.streams,
        device=args.device,
    )
    scorer.share()
    aligner = Aligner(scorer, compiler_of(args.ali, lang), options)
    utterances: Iterator[Spoken] = zip(names, word_ids(data, names, lang), strict=True)
    places = Places(data=args.data, ali=args.ali, lang=args.lang, out=args.out)
    realign(aligner, utterances, len(names), places, jobs=args.jobs, max_failed=limit)
    return 0
