"""`hadpsgd corpus`: prepare a corpus as Kaldi data directories, dictionary and texts."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from hadpsgd.config import Config, load
from hadpsgd.corpus import an4, kaldi
from hadpsgd.corpus.builtin import prepare as builtin
from hadpsgd.corpus.summary import table
from hadpsgd.corpus.validate import Summary
from hadpsgd.files import atomic_folder, write_text
from hadpsgd.parallel import add_jobs

Prepare = Callable[[Config, Path, int], dict[str, Summary]]
"""Makes a corpus from config, folder and number of processes; validates its sets."""

# by corpus.kind
CORPORA: dict[str, Prepare] = {
    "builtin": builtin.prepare,
    "an4": an4.prepare,
    "kaldi": kaldi.prepare,
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--config", required=True, type=Path, help="YAML file")
    parser.add_argument("--out", required=True, type=Path, help="corpus folder, replaced whole")
    add_jobs(parser)


def run(args: argparse.Namespace) -> int:
    """Prepare, write summary.json, print the summary."""
    config = load(args.config)
    began = time.monotonic()
    with atomic_folder(args.out) as folder:
        summaries = CORPORA[config.corpus.kind](config, folder, args.jobs)
        content = {name: asdict(summary) for name, summary in summaries.items()}
        write_text(folder / "summary.json", json.dumps(content, indent=2) + "\n")
    print(table(summaries), end="")
    print(f"{args.out}: {time.monotonic() - began:.1f} s", file=sys.stderr)
    return 0
