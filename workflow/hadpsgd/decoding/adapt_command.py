"""`hadpsgd adapt`: FMLLR transforms of a data set from its lattices."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hadpsgd import config
from hadpsgd.config.alignment import Ladder
from hadpsgd.decoding import lattice_io
from hadpsgd.decoding.adaptation import estimate, write_transforms
from hadpsgd.decoding.gmm import GmmScorer, gmm_scale
from hadpsgd.decoding.lattice import Scaling
from hadpsgd.gmm.adaptation import MIN_COUNT
from hadpsgd.gmm.data import Lang
from hadpsgd.numeric import real


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the stage."""
    parser.add_argument("--config", type=Path, required=True, help="config (YAML)")
    parser.add_argument(
        "--model", type=Path, required=True, help="folder of the speaker-adaptively trained model"
    )
    parser.add_argument(
        "--lattices", type=Path, required=True, help="what decode-gmm, or decode, left"
    )
    parser.add_argument("--data", type=Path, required=True, help="Kaldi data directory of the set")
    parser.add_argument("--feats", type=Path, required=True, help="folder of its MFCC and CMVN")
    parser.add_argument("--lang", type=Path, required=True, help="lang folder")
    parser.add_argument(
        "--trans", type=Path, help="transforms that the lattices were made with: to go on from"
    )
    parser.add_argument(
        "--acoustic-scale",
        type=real("--acoustic-scale", most=1000, above=True),
        help="of the posteriors (default: the lattices' own)",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of trans.1")


def run(args: argparse.Namespace) -> int:
    """Write OUT/trans.1 and OUT/adaptation.json."""
    settings = config.load(args.config)
    options = settings.alignment
    least = options.min_speaker_frames if isinstance(options, Ladder) else MIN_COUNT
    scale = args.acoustic_scale or lattice_io.scale_of(args.lattices) or gmm_scale(settings)
    skipped = settings.features.max_skipped.of(args.data.name)
    scorer = GmmScorer(
        folder=args.model,
        data=args.data,
        feats=args.feats,
        transforms=args.trans,
        max_skipped=skipped,
    )
    found = estimate(
        scorer,
        lattice_io.read(args.lattices),
        Scaling(acoustic_scale=scale),
        Lang(args.lang).silence,
        least,
    )
    print(found.summary, file=sys.stderr)
    write_transforms(found, args.out)
    return 0
