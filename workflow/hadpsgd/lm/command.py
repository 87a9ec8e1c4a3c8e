"""`hadpsgd lm`: language model from text, or an existing ARPA file, checked; and its report."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from hadpsgd import config
from hadpsgd.files import write_text
from hadpsgd.lm import arpa, perplexity, train
from hadpsgd.lm.vocabulary import Vocabulary


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the stage."""
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True, help="one sentence a line")
    parser.add_argument("--dev", type=Path, help="text whose perplexity is reported")
    parser.add_argument("--lang", type=Path, required=True, help="folder with words.txt")
    parser.add_argument("--out", type=Path, required=True, help="folder of the ARPA and report")


def run(args: argparse.Namespace) -> int:
    """Write OUT/<order>gram.arpa.gz and OUT/report.json."""
    settings = config.load(args.config).lm
    out = args.out / f"{settings.order}gram.arpa.gz"
    vocabulary = Vocabulary.of_lang(args.lang)
    report: dict[str, Any] = {"source": str(settings.arpa or args.text)}
    if settings.arpa:
        counts = arpa.check(Path(settings.arpa))
        train.write(out, counts, arpa.read(Path(settings.arpa)))
    else:
        train.train(args.text, vocabulary, settings.order, out)
        report["text"] = vocabulary.report()
    counts = arpa.check(out)
    unigrams = {n.words[0] for n in _unigrams(out)}
    unseen = sorted(vocabulary.words - unigrams)
    report |= {
        "ngrams": counts,
        "words_without_pronunciation": _some(unigrams - vocabulary.words - _MARKS),
        "lexicon_words_without_probability": _some(set(unseen)),
    }
    if args.dev:
        report["dev"] = _dev(out, args.dev, args.lang)
    write_text(args.out / "report.json", json.dumps(report, indent=2) + "\n")
    _say(report)
    return 0


_MARKS = {arpa.BOS, arpa.EOS, arpa.UNK}


def _unigrams(path: Path) -> list[arpa.Ngram]:
    found = []
    for ngram in arpa.read(path):
        if len(ngram.words) > 1:
            break
        found.append(ngram)
    return found


def _some(words: set[str], limit: int = 50) -> dict[str, Any]:
    return {"count": len(words), "words": sorted(words)[:limit]}


def _dev(model: Path, text: Path, lang: Path) -> dict[str, Any]:
    vocabulary = Vocabulary.of_lang(lang)
    result = perplexity.score(perplexity.load(model), vocabulary.map(text))
    return vocabulary.report() | {
        "perplexity": result.perplexity,
        "sentences": result.sentences,
        "not_in_model": result.oov,
    }


def _say(report: dict[str, Any]) -> None:
    text = report.get("text", {})
    if text.get("oov"):
        print(
            f"warning: {text['oov']} of {text['words']} words of the text are not in the lexicon,"
            f" such as {', '.join(list(text['oov_words'])[:5])}; see report.json",
            file=sys.stderr,
        )
    missing = report["words_without_pronunciation"]
    if missing["count"]:
        print(
            f"warning: {missing['count']} words of the language model have no pronunciation and"
            f" are left out of the graph, such as {', '.join(missing['words'][:5])}",
            file=sys.stderr,
        )
    if "dev" in report:
        dev = report["dev"]
        print(
            f"dev: perplexity {dev['perplexity']:.2f}, {dev['oov_percent']:.2f} % of words unknown",
            file=sys.stderr,
        )
