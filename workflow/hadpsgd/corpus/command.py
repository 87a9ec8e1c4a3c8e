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
from hadpsgd.corpus import an4
from hadpsgd.corpus.builtin import prepare as builtin
from hadpsgd.corpus.dictdir import read_lexicon
from hadpsgd.corpus.layout import Layout
from hadpsgd.corpus.summary import table
from hadpsgd.corpus.validate import Checks, Summary, validate_or_fail
from hadpsgd.files import atomic_folder, write_text

Prepare = Callable[[Config, Path, int], None]

# corpus.kind: what makes it, given the config, the folder and the number of processes
CORPORA: dict[str, Prepare] = {"builtin": builtin.prepare, "an4": an4.prepare}


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--config", required=True, type=Path, help="YAML file")
    parser.add_argument("--out", required=True, type=Path, help="corpus folder, replaced whole")
    parser.add_argument("--processes", type=int, default=2, help="default 2")


def run(args: argparse.Namespace) -> int:
    """Prepare and validate, write summary.json, print the summary."""
    config = load(args.config)
    began = time.monotonic()
    with atomic_folder(args.out) as folder:
        CORPORA[config.corpus.kind](config, folder, args.processes)
        summaries = check(config, Layout(folder))
        content = {name: asdict(summary) for name, summary in summaries.items()}
        write_text(folder / "summary.json", json.dumps(content, indent=2) + "\n")
    print(table(summaries), end="")
    print(f"{args.out}: {time.monotonic() - began:.1f} s", file=sys.stderr)
    return 0


def check(config: Config, layout: Layout) -> dict[str, Summary]:
    """Validate every set of a prepared corpus.

    Raises:
        UserError: a set has a fault; all are printed.
    """
    kaldi = config.corpus if config.corpus.kind == "kaldi" else None
    checks = Checks(
        config.features.sample_rate,
        read_lexicon(layout.lexicon),
        max_oov=kaldi.max_oov if kaldi else 0.0,
        allow_pipes=kaldi.allow_pipes if kaldi else False,
    )
    sets = ("train", "dev", *config.tests)
    return {name: validate_or_fail(layout.data(name), checks) for name in sets}
