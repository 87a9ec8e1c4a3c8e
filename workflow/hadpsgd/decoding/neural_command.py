"""`hadpsgd neural-lists`: n-best lists of a decoded set, for `tune` and `score`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hadpsgd import config, diverged
from hadpsgd.corpus.lang.directory import read_symbols
from hadpsgd.decoding import lattice_io
from hadpsgd.decoding.list_files import checksum_of, partial_of, write
from hadpsgd.decoding.list_settings import ListSettings
from hadpsgd.decoding.neural_lists import ListMaker
from hadpsgd.lm import backoff
from hadpsgd.lm.neural.command import settings_of
from hadpsgd.lm.neural.mixture import Models
from hadpsgd.lm.neural.model import load
from hadpsgd.parallel import add_jobs
from hadpsgd.progress import tracked


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the stage."""
    add = parser.add_argument
    add("--config", type=Path, required=True, help="config (YAML) with lm.neural")
    add("--decode", type=Path, required=True, help="folder of its lattices")
    add("--model", type=Path, required=True, help="model.pt of `hadpsgd neural-lm`")
    add("--arpa", type=Path, required=True, help="the n-gram of the lattices (gzipped too)")
    add_jobs(parser)
    add("--out", type=Path, required=True, help="the lists (.jsonl.gz)")


def run(args: argparse.Namespace) -> int:
    """Write OUT: of every utterance the best word sequences, costs, log probabilities of words."""
    if why := diverged.told(args.decode):
        diverged.note(args.out, why)
        return diverged.say(why=why, what="listed")
    whole = config.load(args.config)
    settings = settings_of(whole, args.config)
    wanted = ListSettings.of(whole, settings)
    network, words = load(args.model)
    maker = ListMaker(
        Models(backoff.load(args.arpa), network, words),
        {number: name for name, number in read_symbols(args.decode / "words.txt").items()},
        wanted.scalings,
        wanted.nbest,
        partial_of(args.decode),
    )
    lists = maker.all(lattice_io.read(args.decode), args.jobs)
    total = lattice_io.count(args.decode)
    lists = tracked(lists, total, what="lists", unit="utterances")
    utterances, sequences = write(args.out, lists, lattices=checksum_of(args.decode))
    print(f"{sequences} word sequences of {utterances} utterances", file=sys.stderr)
    return 0
