"""`hadpsgd nbest`: the best word sequences of every utterance, as Kaldi's lattice-to-nbest."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hadpsgd import config
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.decoding.nbest import nbest
from hadpsgd.files import atomic_folder
from hadpsgd.numeric import whole
from hadpsgd.scoring.command import read_tuned
from hadpsgd.scoring.filters import Filters
from hadpsgd.scoring.hypotheses import Words, lattices

MOST_WANTED = 100_000
_MORE = 4  # sequences looked at for each one wanted, as dropped words make them equal


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the stage."""
    parser.add_argument("--config", type=Path, required=True, help="config (YAML)")
    parser.add_argument("--decode", type=Path, required=True, help="folder of its lattices")
    parser.add_argument("--data", type=Path, required=True, help="Kaldi data directory of the set")
    parser.add_argument("--tuned", type=Path, required=True, help="tuned.json of the dev set")
    count = whole("--count", most=MOST_WANTED)
    parser.add_argument("--count", type=count, default=10, help="at most so many (10)")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder of the word sequences to write"
    )


def run(args: argparse.Namespace) -> int:
    """Write OUT/{text,graph_costs,acoustic_costs}: lines `utterance-N ...`, N from 1, best first.

    Costs are negative log probabilities, acoustic ones not scaled. Sequences that differ only in
    words that scoring drops (silence) are one.
    """
    settings = config.load(args.config).scoring
    data = DataDir.read(args.data, audio=False, text=False)
    words = Words.read(args.decode, Filters.of(settings))
    scaling = read_tuned(args.tuned).scaling(words)
    utterances = total = 0
    with (
        atomic_folder(args.out) as folder,
        (folder / "text").open("w", encoding="utf-8") as texts,
        (folder / "graph_costs").open("w", encoding="utf-8") as graph,
        (folder / "acoustic_costs").open("w", encoding="utf-8") as acoustic,
    ):
        for utterance, lattice in lattices(args.decode, data):
            utterances += 1
            seen: set[str] = set()
            for each in nbest(lattice, scaling, count=_MORE * args.count):
                text = " ".join(words.spoken(each.words))
                if text in seen or len(seen) == args.count:
                    continue
                seen.add(text)
                name = f"{utterance}-{len(seen)}"
                texts.write(f"{name} {text}".rstrip() + "\n")
                graph.write(f"{name} {each.graph:.4f}\n")
                acoustic.write(f"{name} {each.acoustic:.4f}\n")
            total += len(seen)
    print(f"{total} word sequences of {utterances} utterances", file=sys.stderr)
    return 0
