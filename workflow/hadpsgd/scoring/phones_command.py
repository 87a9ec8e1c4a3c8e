"""`hadpsgd phone-ctm`: phones of the best paths with their times."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hadpsgd.corpus.datadir import DataDir
from hadpsgd.corpus.lang.directory import read_symbols
from hadpsgd.decoding.lattice import best_paths
from hadpsgd.decoding.word_times import FRAME_SHIFT, phone_spans
from hadpsgd.errors import UserError
from hadpsgd.files import atomic_file
from hadpsgd.graph.transitions import Transitions
from hadpsgd.scoring import formats
from hadpsgd.scoring.command import read_tuned
from hadpsgd.scoring.filters import Filters
from hadpsgd.scoring.formats import TimedWord
from hadpsgd.scoring.hypotheses import Words, lattices


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the stage."""
    parser.add_argument("--decode", type=Path, required=True, help="folder of its lattices")
    parser.add_argument("--data", type=Path, required=True, help="Kaldi data directory of the set")
    parser.add_argument("--tuned", type=Path, required=True, help="tuned.json of the dev set")
    parser.add_argument("--out", type=Path, required=True, help="CTM file")


def run(args: argparse.Namespace) -> int:
    """Write lines `file channel begin duration phone`, silence included, in NIST's order."""
    data = DataDir.read(args.data, audio=False, text=False)
    transitions = Transitions.read(args.decode / "transitions.npz")
    names = {number: name for name, number in read_symbols(args.decode / "phones.txt").items()}
    scaling = read_tuned(args.tuned).scaling(Words.read(args.decode, Filters()))
    rows: list[TimedWord] = []
    for utterance, lattice in lattices(args.decode, data):
        entry = data.utterances[utterance]
        file, channel = data.file_and_channel(entry)
        path = best_paths(lattice, [scaling])[0]
        transitions.check(path.transitions, f"lattice of {utterance}")
        for span in phone_spans(path, transitions):
            if span.label not in names:
                what = f"phones.txt lacks phone {span.label}"
                raise UserError(what, where=args.decode, fix="Decode again")
            begin = entry.start + span.begin * FRAME_SHIFT
            seconds = (span.end - span.begin) * FRAME_SHIFT
            rows.append(
                TimedWord(
                    file=file,
                    channel=channel,
                    begin=begin,
                    duration=seconds,
                    word=names[span.label],
                )
            )
    with atomic_file(args.out) as temporary:
        formats.write_lines(temporary, formats.in_order(rows))
    print(f"{len(rows)} phones", file=sys.stderr)
    return 0
