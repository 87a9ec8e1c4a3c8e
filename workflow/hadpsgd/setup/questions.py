"""What `hadpsgd init` asks on a terminal where no flag says it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from hadpsgd.setup.start import PROFILES
from hadpsgd.setup.words import ENGLISH, LETTERS

SOURCES = {
    "csv": "a table (CSV) of your recordings, with columns file and text",
    "kaldi": "a Kaldi data directory, or a folder of train, dev and test",
    "lhotse": "a manifest of cuts (of recordings and supervisions: hadpsgd init --lhotse A B)",
}


def ask(args: argparse.Namespace) -> None:
    """Ask for source, name, pronunciations and cluster; answers go into `args`."""
    print("What do you have?")
    for name, what in SOURCES.items():
        print(f"  {name}: {what}")
    source = _choice("csv, kaldi or lhotse", list(SOURCES), "csv")
    while not (path := Path(_answer("Where is it").strip()).expanduser()).exists():
        print(f"  {path}: no such file or folder")
    setattr(args, source, [path] if source == "lhotse" else path)
    args.name = args.name or _answer("Name of the config (letters, digits, - and _)", "mine")
    print("Pronunciations: a lexicon (FILE: word phone phone ...), or made here:")
    print(f"  {LETTERS}: every word as it is spelled, any language")
    print(f"  {ENGLISH}: American English by espeak-ng")
    args.lexicon = _answer(f"{LETTERS}, {ENGLISH} or FILE", args.lexicon)
    args.cluster = _choice(
        f"Where will it run: {', '.join(PROFILES)}", list(PROFILES), args.cluster
    )


def _choice(question: str, allowed: Sequence[str], default: str) -> str:
    while (answer := _answer(question, default)) not in allowed:
        print(f"  one of {', '.join(allowed)}")
    return answer


def _answer(question: str, default: str = "") -> str:
    while True:
        said = input(f"{question}{f' [{default}]' if default else ''}: ").strip() or default
        if said:
            return said
