"""`hadpsgd score-ctm`: word error rate of any recogniser's CTM file against an STM file."""

from __future__ import annotations

import argparse
from pathlib import Path

from hadpsgd.config import load
from hadpsgd.errors import UserError
from hadpsgd.files import atomic_folder
from hadpsgd.scoring import formats, nist
from hadpsgd.scoring.filters import Filters
from hadpsgd.scoring.reference import Reference
from hadpsgd.scoring.scored import Scored


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the stage."""
    parser.add_argument("--stm", type=Path, required=True, help="reference segments")
    parser.add_argument("--ctm", type=Path, required=True, help="recognised words, in order")
    parser.add_argument("--glm", type=Path, help="filter both as hubscr does")
    parser.add_argument(
        "--config", type=Path, help="leave out of the words what its `scoring` says, map acronyms"
    )
    parser.add_argument("--nist-tools", action="store_true", help="ask sclite or hubscr, too")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder of wer.json and alignments to write"
    )


def run(args: argparse.Namespace) -> int:
    """Write OUT/{ctm,stm,alignments.txt,sentences.jsonl,wer.json}, with a GLM *.filt."""
    reference = Reference.read(stm=args.stm, glm_path=args.glm)
    filters = Filters.of(load(args.config).scoring) if args.config else Filters()
    words = list(filters.timed(formats.read_ctm(args.ctm)))
    scored = Scored.of(reference, words, nist_tools=args.nist_tools)
    if not nist.total(scored.sentences).words:
        what = "nothing to score: no words in segments that count"
        raise UserError(what, where=args.stm, fix="Is it the reference?")
    with atomic_folder(args.out) as folder:
        scored.write(folder, {})
    scored.say(args.ctm.name)
    return 0
