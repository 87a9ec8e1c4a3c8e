"""`hadpsgd lang`: the lang folder, made from the dict folder or taken from Kaldi."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hadpsgd.config import load
from hadpsgd.config.alignment import KaldiAlignment
from hadpsgd.corpus.lang.dictionary import read_dictionary
from hadpsgd.corpus.lang.directory import copy_lang, write_lang
from hadpsgd.corpus.lang.graphemes import spelled
from hadpsgd.errors import UserError


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--config", type=Path, required=True, help="YAML config")
    parser.add_argument("--dict", type=Path, required=True, help="Kaldi's data/local/dict")
    parser.add_argument("--out", type=Path, required=True, help="lang folder to write")


def run(args: argparse.Namespace) -> int:
    """Write the lang folder; with imported alignments, copy theirs."""
    config = load(args.config)
    if isinstance(config.alignment, KaldiAlignment):
        if config.lang.units != "phones":
            raise UserError(
                "lang.units: imported alignments bring their own phones",
                where=args.config,
                fix="Leave it out, or train the alignments here (alignment.kind: mono)",
            )
        source = Path(config.alignment.lang_dir)
        copy_lang(source=source, out=args.out)
        print(f"lang: copied from {source}", file=sys.stderr)
        return 0
    dictionary = read_dictionary(args.dict)
    if config.lang.units == "graphemes":
        dictionary = spelled(dictionary)
    write_lang(dictionary, config.lang, args.out)
    words = len({entry.word for entry in dictionary.lexicon})
    print(f"lang: {words} words, {len(dictionary.lexicon)} pronunciations", file=sys.stderr)
    return 0
