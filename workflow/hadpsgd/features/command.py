"""`hadpsgd features`: a stream of features of a Kaldi data directory, computed or imported."""

from __future__ import annotations

import argparse
from pathlib import Path

from hadpsgd.config import load
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.features.extract import EXTRACTORS, extract
from hadpsgd.features.import_command import import_stream
from hadpsgd.parallel import add_jobs


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--config", type=Path, required=True, help="config (YAML)")
    parser.add_argument(
        "--stream", choices=sorted(EXTRACTORS), required=True, help="which features"
    )
    parser.add_argument("--data", type=Path, required=True, help="Kaldi data directory")
    parser.add_argument("--out", type=Path, required=True, help="folder of feats.scp, cmvn.scp")
    add_jobs(parser)


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    config = load(args.config)
    imported = getattr(config.features.imports, args.stream) is not None
    data = DataDir.read(args.data, text=False, audio=not imported)
    if imported:
        import_stream(config, args.stream, data, feats=None, out=args.out, jobs=args.jobs)
    else:
        extract(args.stream, config, data, args.out, args.jobs)
    return 0
