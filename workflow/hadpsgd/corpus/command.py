"""`hadpsgd corpus`: prepare a corpus, or a part of one, as Kaldi data directories and texts."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from hadpsgd.config import load
from hadpsgd.corpus.kinds import PARTS, prepare, prepare_part
from hadpsgd.corpus.summary import table
from hadpsgd.errors import UserError
from hadpsgd.files import atomic_folder, write_text
from hadpsgd.parallel import add_jobs


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--config", required=True, type=Path, help="YAML file")
    parser.add_argument(
        "--out", required=True, type=Path, help="corpus folder, replaced whole without --only"
    )
    add_jobs(parser)
    parser.add_argument("--only", choices=PARTS, help="make this part alone")
    parser.add_argument("--set", default="", help="set of that part (data, words)")


def run(args: argparse.Namespace) -> int:
    """Prepare, print what the sets hold; of a whole corpus also write that to summary.json."""
    config = load(args.config)
    if args.set and args.set not in ("train", "dev", *config.tests):
        raise UserError(f"no set '{args.set}' in config '{config.name}'")
    began = time.monotonic()
    if args.only:
        summaries = prepare_part(
            config, part=args.only, name=args.set, out=args.out, processes=args.jobs
        )
    else:
        with atomic_folder(args.out) as folder:
            summaries = prepare(config, folder, args.jobs)
            content = {name: asdict(summary) for name, summary in summaries.items()}
            write_text(folder / "summary.json", json.dumps(content, indent=2) + "\n")
    if summaries:
        print(table(summaries), end="")
    print(f"{args.out}: {time.monotonic() - began:.1f} s", file=sys.stderr)
    return 0
