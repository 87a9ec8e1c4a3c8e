"""`hadpsgd error-analysis`: a page of one run's errors, with audio, and why they happened."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from hadpsgd import diverged
from hadpsgd.config import Config, load
from hadpsgd.corpus.datadir import AudioReader, DataDir
from hadpsgd.corpus.lang.joined import joined
from hadpsgd.decoding.network import (
    NetworkScorer,
    add_device,
    add_models,
    why_any_diverged,
)
from hadpsgd.decoding.reference import ReferenceGraph
from hadpsgd.decoding.with_gmm import add_gmm, with_gmm
from hadpsgd.files import atomic_folder
from hadpsgd.numeric import real, whole
from hadpsgd.parallel import add_jobs
from hadpsgd.reports.causes import CAUSES, Judge, causes, found_costs, utterances_of
from hadpsgd.reports.confusions import TOP
from hadpsgd.reports.errors import LISTED, MINUTES, SetErrors, pattern
from hadpsgd.reports.html import render
from hadpsgd.scoring import sentences
from hadpsgd.scoring.command import read_tuned
from hadpsgd.scoring.filters import Filters
from hadpsgd.scoring.hypotheses import Timer, Words
from hadpsgd.tracking.results import read_json

_TEMPLATE = "errors.html.j2"


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--config", type=Path, required=True, help="config (YAML)")
    parser.add_argument("--sets", nargs="+", help="test sets (default: those of the config)")
    add_models(parser)
    parser.add_argument("--graph", type=Path, required=True, help="folder of HCLG.fst")
    parser.add_argument("--data", type=Path, required=True, help="folder of <set>/")
    parser.add_argument("--streams", type=Path, required=True, help="folder of <stream>/<set>/")
    parser.add_argument("--decode", type=Path, required=True, help="folder of <set>/")
    parser.add_argument("--score", type=Path, required=True, help="folder of tuned.json, <set>/")
    parser.add_argument(
        "--listed",
        type=whole("--listed", least=0),
        default=LISTED,
        help="wrong sentences of each set to list",
    )
    parser.add_argument(
        "--audio-minutes",
        type=real("--audio-minutes"),
        default=MINUTES,
        help="audio of each set that the page has: of confusions, then of the worst sentences",
    )
    add_gmm(parser)
    add_jobs(parser)
    add_device(parser)
    parser.add_argument("--out", type=Path, required=True, help="folder of the page to write")


def run(args: argparse.Namespace) -> int:
    """Write OUT/index.html, which needs no other file, and OUT/errors.json."""
    config = load(args.config)
    if why := why_any_diverged(args.model):
        with atomic_folder(args.out) as folder:
            _write_page(config, args, folder, [], why)
        return diverged.say(why=why, what="analysed")
    names = args.sets or list(config.tests)
    words = Words.read(args.decode / names[0], Filters.of(config.scoring))
    free = [n for n, word in words.names.items() if words.filters.drop(joined([word]))]
    graph = ReferenceGraph.read(args.graph, free)
    with atomic_folder(args.out) as folder:
        found = [_set(config, args, graph, words, name) for name in names]
        _write_page(config, args, folder, found)
    for each in found:
        parts = [f"{row['errors']} by {kind}" for kind, row in each.why.items() if row["errors"]]
        said = ", ".join(parts) or "none"
        print(f"{each.name}: {each.total.errors} errors: {said}", file=sys.stderr)
    return 0


def _write_page(
    config: Config, args: argparse.Namespace, folder: Path, found: list[SetErrors], why: str = ""
) -> None:
    """index.html and errors.json; `why` a run diverged that has no errors."""
    synthetic = config.corpus.kind == "builtin"
    made = page(
        name=config.name,
        run=args.score.name,
        synthetic=synthetic,
        found=found,
        why=why,
        minutes=args.audio_minutes,
    )
    (folder / "index.html").write_text(made, "utf-8")
    report = {each.name: each.as_json() for each in found}
    (folder / "errors.json").write_text(json.dumps(report, indent=1) + "\n", "utf-8")


def _set(
    config: Config, args: argparse.Namespace, graph: ReferenceGraph, words: Words, name: str
) -> SetErrors:
    data = DataDir.read(args.data / name, audio=False)
    scored = sentences.read(args.score / name)
    scaling = read_tuned(args.score / "tuned.json").scaling(words)
    utterances = utterances_of(scored, data)
    wrong = [utterances[s.name] for s in scored if s.counts.errors and s.name in utterances]
    networks = NetworkScorer(
        config=config,
        models=tuple(args.model),
        data=args.data / name,
        streams=args.streams,
        device=args.device,
    )
    scorer = with_gmm(networks, args, config)
    scorer.share()
    there = set(scorer.utterances())
    decode = args.decode / name
    why = causes(
        Judge(graph, scorer, scaling, Timer.read(decode, words, data)),
        data,
        words,
        found_costs(decode, data, scaling, set(wrong)),
        read_json(decode / "decode.json").get("partial", []),
        [utterance for utterance in dict.fromkeys(wrong) if utterance in there],
        args.jobs,
    )
    found = SetErrors(name, scored, data, utterances, dict(why), args.listed)
    pipes = getattr(config.corpus, "allow_pipes", False)
    reader = AudioReader(data, config.features.sample_rate, allow_pipes=pipes)
    with reader:
        return found.heard(reader, minutes=args.audio_minutes)


def page(
    *,
    name: str,
    run: str,
    synthetic: bool,
    found: list[SetErrors],
    why: str = "",
    minutes: float = MINUTES,
) -> str:
    """The page as text: of a run of the config `name`, or why that diverged."""
    return render(
        _TEMPLATE,
        name=name,
        run=run,
        synthetic=synthetic,
        sets=found,
        diverged=why,
        minutes=minutes,
        top=TOP,
        patterns=pattern,
        kinds=[k for k in CAUSES if any(each.why[k]["sentences"] for each in found)],
    )
