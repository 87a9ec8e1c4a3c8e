"""`hadpsgd tune`: language model weight and word penalty, chosen on the development set."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hadpsgd import config, diverged
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.decoding import list_files
from hadpsgd.decoding.list_settings import ListSettings
from hadpsgd.errors import UserError
from hadpsgd.files import write_text
from hadpsgd.scoring.filters import Filters
from hadpsgd.scoring.hypotheses import Words
from hadpsgd.scoring.perplexities import read as perplexities_of
from hadpsgd.scoring.tune import Setting, Tried, choose, settings_of, tune


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the stage."""
    parser.add_argument("--config", type=Path, required=True, help="config (YAML)")
    parser.add_argument("--decode", type=Path, required=True, help="decoded development set")
    parser.add_argument("--data", type=Path, required=True, help="its data directory")
    parser.add_argument(
        "--lists", type=Path, help="its lists, of `hadpsgd neural-lists`, with lm.neural"
    )
    parser.add_argument(
        "--neural", type=Path, help="meta.json of `hadpsgd neural-lm`: perplexities of its weights"
    )
    parser.add_argument("--out", type=Path, required=True, help="tuned.json")


def run(args: argparse.Namespace) -> int:
    """Write OUT with the choice and all that was tried."""
    if why := diverged.told(args.decode):
        diverged.note(args.out, why)
        return diverged.say(why=why, what="chosen")
    whole = config.load(args.config)
    settings, neural = whole.scoring, whole.lm.neural
    for option, given, stage in (
        ("--lists", args.lists, "neural-lists"),
        ("--neural", args.neural, "neural-lm"),
    ):
        if (neural is None) == bool(given):
            what = f"no lm.neural, and {option}" if given else f"lm.neural, and no {option}"
            raise UserError(what, where=args.config, fix=f"`hadpsgd {stage}` makes what it takes")
    data = DataDir.read(args.data, audio=False)
    words = Words.read(args.decode, Filters.of(settings))
    tried = settings_of(settings, neural.weights if neural else (0.0,))
    lists = list_files.read_of(args.lists, decode=args.decode) if args.lists else None
    perplexities = perplexities_of(args.neural, neural.weights) if neural else None
    found = tune(args.decode, data, words, tried, lists)
    best, fewest = choose(found, perplexities), choose(found)
    table = [_row(found, i, perplexities) for i in range(len(tried))]
    chosen = tried[best]
    how: dict[str, object] = {"minimum_bayes_risk": True} if chosen.minimum_bayes_risk else {}
    if neural:
        how["lists"] = ListSettings.of(whole, neural).as_json()
    write_text(args.out, json.dumps({**table[best], **how, "tried": table}, indent=2) + "\n")
    more = f", neural weight {chosen.neural_weight:g}" if neural else ""
    count = found.counts[best]
    print(
        f"language model weight {chosen.lm_weight:g}, word penalty {chosen.word_penalty:g}{more}:"
        f" {count.wer:.2f} % of {count.words} words",
        file=sys.stderr,
    )
    if perplexities and best != fewest:
        print(_why(found, best, fewest, perplexities), file=sys.stderr)
    for edge in edges(tried, chosen):
        print(f"warning: the chosen {edge} is the last one tried: try more", file=sys.stderr)
    return 0


def _row(found: Tried, i: int, perplexities: Mapping[float, float] | None) -> dict[str, object]:
    """A setting in tuned.json."""
    setting, count = found.settings[i], found.counts[i]
    row: dict[str, object] = {
        "lm_weight": setting.lm_weight,
        "word_penalty": setting.word_penalty,
    }
    if perplexities:
        row["neural_weight"] = setting.neural_weight
        row["perplexity"] = perplexities[setting.neural_weight]
    return row | {"errors": count.errors, "words": count.words, "wer": round(count.wer, 3)}


def _why(found: Tried, best: int, fewest: int, perplexities: Mapping[float, float]) -> str:
    """Why not the fewest errors."""
    chosen, other = found.settings[best].neural_weight, found.settings[fewest].neural_weight
    more = found.counts[best].errors - found.counts[fewest].errors
    return (
        f"neural weight {other:g} has {more} errors fewer, within their standard error of"
        f" {found.standard_error(best, fewest):.1f}: {chosen:g} has the lower perplexity"
        f" ({perplexities[chosen]:.2f}, {perplexities[other]:.2f})"
    )


def edges(tried: Sequence[Setting], chosen: Setting) -> list[str]:
    """Which of the chosen values lie at an end of those tried."""
    found = []
    for name, values, value in (
        ("scoring.lm_weights", {s.lm_weight for s in tried}, chosen.lm_weight),
        ("scoring.word_penalties", {s.word_penalty for s in tried}, chosen.word_penalty),
    ):
        if len(values) > 1 and value in (min(values), max(values)):
            found.append(f"{name} {value:g}")
    return found
