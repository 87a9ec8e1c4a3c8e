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
from hadpsgd.scoring.seeds import mean_over_seeds, p_over_seeds
from hadpsgd.scoring.significance import (
    bootstrap,
    bootstrap_difference_of_rows,
    mapsswe_of_rows,
    unit,
)

Members = Mapping[str, Sequence[Sentence]]
"""Scored sentences of the runs of a row."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the stage."""
    parser.add_argument("scores", type=Path, nargs="+", help="scoring folders of one test set")
    parser.add_argument("--names", nargs="+", help="names of the runs (default: from the paths)")
    parser.add_argument("--out", type=Path, help="write JSON there")


def run(args: argparse.Namespace) -> int:
    """Print the table, write JSON where asked."""
    scored = [sentences.read(path) for path in args.scores]  # names are of no use without
    names = args.names or [_name(path) for path in args.scores]
    if len(names) != len(args.scores) or len(set(names)) < len(names):
        raise UserError("as many different names as scoring folders are needed", fix="Use --names")
    report = compare(dict(zip(names, scored, strict=True)))
    if args.out:
        write_text(args.out, json.dumps(report, indent=2) + "\n")
    print(as_text(report))
    return 0


def _name(path: Path) -> str:
    """RUN of score/RUN/SET, otherwise the whole path."""
    parts = path.resolve().parts
    return parts[-2] if len(parts) > 2 else str(path)


def compare(runs: Members, seed: int = 0) -> dict[str, Any]:
    """WER of every run with its bootstrap interval, and every pair's tests.

    `drawn` says over what the bootstrap goes: `speakers` or `sentences`.

    Raises:
        UserError: the runs were scored on different sets.
    """
    return compare_rows({name: {name: scored} for name, scored in runs.items()}, seed)


def compare_rows(rows: Mapping[str, Members], seed: int = 0) -> dict[str, Any]:
    """The same of rows, whose members differ in their seed alone.

    A row of several has its members' mean, with an interval over seeds, and `members`. A pair's
    difference, interval and p are of the members' mean errors on this speech, `p_seeds` is over
    seeds, null where a row has one member or neither row's members differ.

    Raises:
        UserError: the runs were scored on different sets.
    """
    found = {row: _row(row, members, seed) for row, members in rows.items()}
    pairs = []
    for first, second in combinations(rows, 2):
        one, two = (list(rows[row].values()) for row in (first, second))
        try:
            test = mapsswe_of_rows(one, two)
            interval = bootstrap_difference_of_rows(one, two, seed=seed)
        except ValueError as error:
            raise UserError(f"{first} and {second}: {error}") from None
        over_seeds = p_over_seeds(*(_rates(rows[row]) for row in (first, second)))
        pairs.append(
            {
                "first": first,
                "second": second,
                "difference": round(interval.value, 3),
                "interval": [round(interval.low, 3), round(interval.high, 3)],
                "segments": test.segments,
                "z": round(test.z, 3),
                "p": round(test.p, 5),
                "p_seeds": None if over_seeds is None else round(over_seeds, 5),
            }
        )
    drawn = unit(next(iter(next(iter(rows.values())).values())))
    return {"runs": found, "pairs": pairs, "drawn": drawn}


def _row(name: str, members: Members, seed: int) -> dict[str, Any]:
    each = {run: _run(scored, seed) for run, scored in members.items()}
    if len(each) == 1:
        (run,) = each
        return each[run] if run == name else {**each[run], "members": each}
    mean = mean_over_seeds(_rates(members))
    return {
        "wer": round(mean.value, 3),
        "interval": [round(mean.low, 3), round(mean.high, 3)],
        "errors": sum(run["errors"] for run in each.values()),
        "words": sum(run["words"] for run in each.values()),
        "members": each,
    }


def _run(scored: Sequence[Sentence], seed: int) -> dict[str, Any]:
    interval, counts = bootstrap(scored, seed=seed), nist.total(scored)
    return {
        "wer": round(interval.value, 3),
        "interval": [round(interval.low, 3), round(interval.high, 3)],
        "errors": counts.errors,
        "words": counts.words,
    }


def _rates(members: Members) -> list[float]:
    """Word error rates in percent."""
    totals = [nist.total(scored) for scored in members.values()]
    return [100.0 * counts.errors / max(counts.words, 1) for counts in totals]


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
