"""`hadpsgd significance`: do runs differ? Every pair of them, tested."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from hadpsgd.errors import UserError
from hadpsgd.files import write_text
from hadpsgd.scoring import nist, sentences
from hadpsgd.scoring.nist import Sentence
from hadpsgd.scoring.significance import bootstrap, bootstrap_difference, mapsswe, unit


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the stage."""
    parser.add_argument("scores", type=Path, nargs="+", help="scoring folders of one test set")
    parser.add_argument("--names", nargs="+", help="names of the runs (default: from the paths)")
    parser.add_argument("--out", type=Path, help="write JSON there")


def run(args: argparse.Namespace) -> int:
    """Print the table, write JSON where asked."""
    names = args.names or [_name(path) for path in args.scores]
    if len(names) != len(args.scores) or len(set(names)) < len(names):
        raise UserError("as many different names as scoring folders are needed", fix="Use --names")
    runs = {name: sentences.read(path) for name, path in zip(names, args.scores, strict=True)}
    report = compare(runs)
    if args.out:
        write_text(args.out, json.dumps(report, indent=2) + "\n")
    print(as_text(report))
    return 0


def _name(path: Path) -> str:
    """RUN of score/RUN/SET, otherwise the whole path."""
    parts = path.resolve().parts
    return parts[-2] if len(parts) > 2 else str(path)


def compare(runs: Mapping[str, Sequence[Sentence]], seed: int = 0) -> dict[str, Any]:
    """WER of every run with its bootstrap interval, and every pair's tests.

    `drawn` says over what the bootstrap goes: `speakers` or `sentences`.

    Raises:
        UserError: the runs were scored on different sets.
    """
    rates: dict[str, Any] = {}
    for name, scored in runs.items():
        interval, counts = bootstrap(scored, seed=seed), nist.total(scored)
        rates[name] = {
            "wer": round(interval.value, 3),
            "interval": [round(interval.low, 3), round(interval.high, 3)],
            "errors": counts.errors,
            "words": counts.words,
        }
    pairs = []
    for first, second in combinations(runs, 2):
        try:
            test = mapsswe(runs[first], runs[second])
            interval = bootstrap_difference(runs[first], runs[second], seed=seed)
        except ValueError as error:
            raise UserError(f"{first} and {second}: {error}") from None
        pairs.append(
            {
                "first": first,
                "second": second,
                "difference": round(interval.value, 3),
                "interval": [round(interval.low, 3), round(interval.high, 3)],
                "segments": test.segments,
                "z": round(test.z, 3),
                "p": round(test.p, 5),
            }
        )
    drawn = unit(next(iter(runs.values())))
    return {"runs": rates, "pairs": pairs, "drawn": drawn}


def as_text(report: Mapping[str, Any]) -> str:
    """The report as two tables (Markdown)."""
    lines = ["| run | WER % | 95 % interval | errors / words |", "|---|---|---|---|"]
    for name, row in report["runs"].items():
        low, high = row["interval"]
        lines.append(
            f"| {name} | {row['wer']:.2f} | {low:.2f} .. {high:.2f} "
            f"| {row['errors']} / {row['words']} |"
        )
    if report["pairs"]:
        lines += ["", "| runs | difference | 95 % interval | segments | MAPSSWE p |"]
        lines.append("|---|---|---|---|---|")
    for row in report["pairs"]:
        low, high = row["interval"]
        lines.append(
            f"| {row['first']} - {row['second']} | {row['difference']:+.2f} "
            f"| {low:+.2f} .. {high:+.2f} | {row['segments']} | {row['p']:.3f} |"
        )
    lines += ["", f"Bootstrap intervals over {report['drawn']}."]
    return "\n".join(lines)
