"""`hadpsgd validate`: check Kaldi data directories and name every fault."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import get_args

from hadpsgd.corpus.case import Kind
from hadpsgd.corpus.dictdir import read_lexicon
from hadpsgd.corpus.parts import EVERY
from hadpsgd.corpus.summary import table
from hadpsgd.corpus.validate import Checks, validate
from hadpsgd.errors import UserError
from hadpsgd.numeric import real, whole
from hadpsgd.parallel import MOST
from hadpsgd.progress import counted
from hadpsgd.uncounted import Uncounted


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("data", nargs="+", type=Path, help="Kaldi data directories")
    parser.add_argument("--lexicon", type=Path, help="lexicon.txt: name the words it lacks")
    parser.add_argument(
        "--sample-rate",
        type=whole("--sample-rate", most=1_000_000),
        default=8000,
        help="Hz (default 8000)",
    )
    parser.add_argument(
        "--allow-pipes", action="store_true", help="run the commands in wav.scp (data you trust)"
    )
    parser.add_argument(
        "--case", choices=get_args(Kind), default="as-is", help="how words are taken that it lacks"
    )
    parser.add_argument(
        "--max-oov",
        type=real("--max-oov", most=1),
        default=0.0,
        help="share of running words that it may lack (0)",
    )
    parser.add_argument(
        "--recordings", nargs="+", default=EVERY, help="a part: wildcards of file names (sw_*)"
    )
    parser.add_argument(
        "--threads",
        type=whole("--threads", most=MOST),
        default=2,
        help="recordings looked at together",
    )


def run(args: argparse.Namespace) -> int:
    """Faults go to standard error, one a line; the counts to standard output."""
    faults: list[UserError] = []
    lexicon = read_lexicon(args.lexicon, faults.append) if args.lexicon else None
    checks = Checks(
        sample_rate=args.sample_rate,
        other_rate="Resample it or give --sample-rate {rate}",
        lexicon=lexicon,
        case=args.case,
        max_oov=args.max_oov,
        recordings=args.recordings,
        scored=Uncounted(),
        allow_pipes=args.allow_pipes,
        threads=args.threads,
    )
    rows = {}
    for path in args.data:
        try:
            rows[str(path)] = validate(path, checks, faults.append)
        except UserError as error:
            faults.append(error)
    for fault in faults:
        print(fault, file=sys.stderr)
    if faults:
        raise UserError(
            f"{counted(len(faults), 'fault')} in {', '.join(map(str, args.data))}, named above"
        )
    print(table(rows), end="")
    return 0
