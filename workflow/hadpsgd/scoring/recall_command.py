"""`hadpsgd word-recall`: how many of some words were recognised, and the WER of the others."""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from hadpsgd.errors import UserError
from hadpsgd.files import write_text
from hadpsgd.scoring import sentences
from hadpsgd.scoring.nist import Sentence
from hadpsgd.texts import words_of


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the stage."""
    parser.add_argument("score", type=Path, help="scoring folder of a set")
    parser.add_argument("--words", type=Path, required=True, help="the words, one a line")
    parser.add_argument("--out", type=Path, help="write JSON there")


def run(args: argparse.Namespace) -> int:
    """Print the counts, write JSON where asked."""
    try:
        words = set(words_of(args.words.read_text(encoding="utf-8").lower()))
    except FileNotFoundError:
        raise UserError("no such list of words", where=args.words) from None
    except UnicodeDecodeError:
        fix = "Convert it: iconv -t UTF-8"
        raise UserError("not UTF-8 text", where=args.words, fix=fix) from None
    if not words:
        raise UserError("no words", where=args.words, fix="Give one a line")
    report = recall(sentences.read(args.score), words)
    if args.out:
        write_text(args.out, json.dumps(report, indent=2) + "\n")
    print(
        f"listed words: {report['recognised']} of {report['said']} recognised"
        f" ({report['recall']:.1f} %), {report['false_alarms']} said wrongly;"
        f" other words: {report['others_wer']:.2f} % WER"
        f" ({report['others_errors']} of {report['others']})"
    )
    return 0


def recall(scored: Sequence[Sentence], words: Collection[str]) -> dict[str, Any]:
    """Counts of the listed words and of the others, by the alignments of scoring.

    said, recognised: of the listed words in the references. false_alarms: listed words recognised
    where something else, or nothing, was said. others_errors: substitutions and deletions of the
    other words, and all insertions; others_wer is in percent of the other words.
    """
    edits = [edit for sentence in scored for edit in sentence.edits]
    said = [edit for edit in edits if edit.ref in words]
    recognised = sum(edit.kind == "C" for edit in said)
    others = sum(edit.ref is not None and edit.ref not in words for edit in edits)
    wrong = sum(edit.kind != "C" and edit.ref not in words for edit in edits)
    return {
        "said": len(said),
        "recognised": recognised,
        "recall": round(100.0 * recognised / max(len(said), 1), 3),
        "false_alarms": sum(edit.kind in "SI" and edit.hyp in words for edit in edits),
        "others": others,
        "others_errors": wrong,
        "others_wer": round(100.0 * wrong / max(others, 1), 3),
    }
