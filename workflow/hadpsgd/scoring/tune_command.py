"""`hadpsgd tune`: language model weight and word penalty, chosen on the development set."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from hadpsgd import config, diverged
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.decoding import list_files
from hadpsgd.decoding.list_settings import ListSettings
from hadpsgd.errors import UserError
from hadpsgd.files import write_text
from hadpsgd.scoring.align import Counts
from hadpsgd.scoring.choice import alike, choose
from hadpsgd.scoring.ends import ends
from hadpsgd.scoring.filters import Filters
from hadpsgd.scoring.hypotheses import Words
from hadpsgd.scoring.tune import settings_of, tune


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the stage."""
    parser.add_argument("--config", type=Path, required=True, help="config (YAML)")
    parser.add_argument(
        "--decode",
        type=Path,
        nargs="+",
        required=True,
        metavar="DECODE",
        help="decoded development set; of several runs: one choice for all of them",
    )
    parser.add_argument("--data", type=Path, required=True, help="its data directory")
    parser.add_argument(
        "--lists",
        type=Path,
        nargs="+",
        metavar="LISTS",
        help="lists of each, of `hadpsgd neural-lists`, with lm.neural",
    )
    parser.add_argument("--out", type=Path, required=True, help="tuned.json")


def run(args: argparse.Namespace) -> int:
    """Write OUT with the choice and all that was tried."""
    if why := diverged.told(args.decode[0]):
        diverged.note(args.out, why)
        return diverged.say(why=why, what="chosen")
    whole = config.load(args.config)
    settings, neural = whole.scoring, whole.lm.neural
    if (neural is None) == bool(args.lists):
        what = "no lm.neural, and --lists" if args.lists else "lm.neural, and no --lists"
        raise UserError(what, where=args.config, fix="`hadpsgd neural-lists` makes what it takes")
    if args.lists and len(args.lists) != len(args.decode):
        what = f"--lists of {len(args.lists)} runs, --decode of {len(args.decode)}"
        raise UserError(what, where=args.config, fix="Give lists of each run, in the same order")
    data = DataDir.read(args.data, audio=False)
    tried = settings_of(settings, neural.weights if neural else None)
    counts, heard = [Counts() for _ in tried], 0
    for decode, file in zip(args.decode, args.lists or [None] * len(args.decode), strict=True):
        if not diverged.told(decode):
            lists = list_files.read_of(file, decode=decode) if file else None
            words = Words.read(decode, Filters.of(settings))
            found = tune(decode, data, words, tried, lists)
            counts = [one + other for one, other in zip(counts, found, strict=True)]
            heard += 1
    if not any(count.words for count in counts):
        what = "references without any word, so that no setting is better than another"
        raise UserError(what, where=args.data, fix="Correct its text or stm")
    near, best = alike(counts), choose(tried, counts)
    table = [
        {
            "lm_weight": setting.lm_weight,
            "word_penalty": setting.word_penalty,
            **({"neural_weight": setting.neural_weight} if neural else {}),
            "errors": count.errors,
            "words": count.words,
            "wer": round(count.wer, 3),
        }
        for setting, count in zip(tried, counts, strict=True)
    ]
    chosen = tried[best]
    how: dict[str, object] = {"minimum_bayes_risk": True} if chosen.minimum_bayes_risk else {}
    if neural:
        how["lists"] = ListSettings.of(whole, neural).as_json()
    tuned = {**table[best], **how, "tried": table}
    write_text(args.out, json.dumps(tuned, indent=2) + "\n")
    of_all = f" in {heard} runs of the row" if heard > 1 else ""
    more = f", neural weight {chosen.neural_weight:g}" if neural else ""
    print(
        f"language model weight {chosen.lm_weight:g}, word penalty {chosen.word_penalty:g}{more}:"
        f" {counts[best].rate}{of_all}, the middle of {len(near)} of {len(tried)} settings"
        f" with {max(counts[i].errors for i in near)} errors or fewer",
        file=sys.stderr,
    )
    for end in ends(tuned):
        print(f"warning: the fewest errors are at {end}", file=sys.stderr)
    return 0
