"""Words of a rerun: chosen as for the original, and counted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from hadpsgd.config import Config
from hadpsgd.errors import UserError
from hadpsgd.files import write_text
from hadpsgd.rerun import comparison
from hadpsgd.rerun.comparison import Item
from hadpsgd.rerun.original import COUNTS, Original
from hadpsgd.scoring.command import read_tuned
from hadpsgd.scoring.tune import Setting


def chosen_for_all(original: Original, config: Config) -> Setting | None:
    """The setting that was chosen for all runs of the original's row (`scoring.one_choice`), which
    one of them alone cannot choose again; None where each run has its own, or it is not known."""
    if not config.scoring.one_choice:
        return None
    if original.tuned is None:
        what = "one choice was made for all runs of its row, and is not here"
        print(f"warning: {original.key}: {what}: chosen for it alone", file=sys.stderr, flush=True)
    return original.tuned


def inputs(original: Original, config: Config, base: Path, sets: Sequence[str]) -> list[Path]:
    """What the scores of the sets are made from."""
    decoded = [base / "decode" / original.key / name for name in sets]
    lists = [base / "lists" / original.key / f"{name}.jsonl.gz" for name in sets]
    return decoded + (lists if config.lm.neural else [])


def score(
    original: Original, chosen: Setting, *, file: Path, base: Path, sets: Sequence[str]
) -> None:
    """Score decoded sets with a setting.

    Raises:
        UserError: a set could not be scored.
    """
    scores = base / "score" / original.key
    write_text(scores / "tuned.json", json.dumps(asdict(chosen), indent=2) + "\n")
    for name in sets:
        lists = base / "lists" / original.key / f"{name}.jsonl.gz"
        command = [sys.executable, "-m", "hadpsgd", "score", "--config", str(file)]
        command += ["--decode", str(base / "decode" / original.key / name)]
        command += ["--data", str(base / "corpus/data" / name)]
        command += ["--tuned", str(scores / "tuned.json"), "--out", str(scores / name)]
        command += ["--lists", str(lists)] if lists.is_file() else []
        if subprocess.run(command, stdout=sys.stderr, check=False).returncode:
            raise UserError("not scored; its message is above", where=scores / name)


def outcome(original: Original, base: Path, made: Sequence[str]) -> list[Item]:
    """Weights, what dev chose, and words of the sets that both scored: the original may have got
    others since."""
    scores = base / "score" / original.key
    summary = json.loads((base / "runs" / original.key / "summary.json").read_text("utf-8"))
    then = {name: counts for name, counts in original.scores.items() if name in made}
    now = {}
    for name in then:
        row = json.loads((scores / name / "wer.json").read_text("utf-8"))
        now[name] = {count: int(row[count]) for count in COUNTS}
    items = comparison.outcome(original.summary, summary, then, now)
    if original.tuned is not None and (scores / "tuned.json").is_file():
        before, after = asdict(original.tuned), asdict(read_tuned(scores / "tuned.json"))
        items += [
            Item(kind="choice", name=name, then=str(before[name]), now=str(after[name]))
            for name in before
            if name != "listed"  # follows from the config, which is that of the original
        ]
    return items
