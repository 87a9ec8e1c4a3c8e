"""`hadpsgd import-alignment`: Kaldi's alignments of a data set."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hadpsgd.alignment.kaldi_import import import_alignments
from hadpsgd.config import load
from hadpsgd.config.alignment import KaldiAlignment
from hadpsgd.corpus.tables import read_counts
from hadpsgd.errors import UserError


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--config", type=Path, required=True, help="YAML config")
    parser.add_argument("--feats", type=Path, required=True, help="features (utt2num_frames)")
    parser.add_argument("--lang", type=Path, required=True, help="lang folder")
    parser.add_argument("--out", type=Path, required=True, help="alignment folder to write")


def run(args: argparse.Namespace) -> int:
    """Import, and say what was taken over."""
    config = load(args.config)
    settings = config.alignment
    if not isinstance(settings, KaldiAlignment):
        raise UserError("alignment.kind is not 'kaldi'", where=args.config)
    counts = read_counts(args.feats / "utt2num_frames")
    sources = [Path(place) for place in settings.folders(args.feats.name)]
    done = import_alignments(
        sources=sources,
        lang=args.lang,
        num_frames=counts,
        max_failed=settings.max_failed.of(args.feats.name),
        out=args.out,
    )
    print(
        f"import-alignment: {done.utterances} utterances, {done.frames:,} frames, "
        f"{done.pdfs} pdf-ids from {', '.join(map(str, sources))}",
        file=sys.stderr,
    )
    return 0
