"""`hadpsgd lm`: language model from text, or an existing ARPA file, checked; and its report."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Set
from pathlib import Path
from typing import Any

from hadpsgd import config
from hadpsgd.config.decoding import Lm
from hadpsgd.errors import UserError
from hadpsgd.files import write_text
from hadpsgd.lm import arpa, backoff, first_pass, perplexity, train
from hadpsgd.lm.mix import mix_tuned
from hadpsgd.lm.prune import prune
from hadpsgd.lm.vocabulary import Vocabulary
from hadpsgd.numeric import whole
from hadpsgd.texts import is_arpa


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the stage."""
    parser.add_argument("--config", type=Path, required=True, help="config (YAML)")
    parser.add_argument("--text", type=Path, required=True, help="one sentence a line")
    parser.add_argument("--dev", type=Path, help="text whose perplexity is reported")
    parser.add_argument("--lang", type=Path, required=True, help="folder with words.txt")
    parser.add_argument("--out", type=Path, required=True, help="folder of the ARPA and report")
    parser.add_argument(
        "--memory",
        type=whole("--memory", most=10**9),
        help="MB that training may take (default: what is free); where that is not enough, it"
        " says so at once; lmplz sorts in four fifths of it",
    )


def run(args: argparse.Namespace) -> int:
    """Write OUT/full.arpa.gz, OUT/first_pass.arpa.gz where asked, and OUT/report.json."""
    settings = config.load(args.config).lm
    out = args.out / FULL
    vocabulary = Vocabulary.of_lang(args.lang)
    if args.dev and next(Vocabulary.of_lang(args.lang).map(args.dev), None) is None:
        raise UserError("no words", where=args.dev, fix="Give one sentence a line")
    report: dict[str, Any] = {
        "sources": build(
            settings,
            text=args.text,
            dev=args.dev,
            lang=args.lang,
            out=out,
            memory=args.memory * 10**6 if args.memory else None,
        )
    }
    counts = arpa.check(out)
    unigrams = first_pass.unigrams(out)
    report |= {
        "order": len(counts),
        "ngrams": counts,
        "words_without_pronunciation": _some(unigrams - vocabulary.words - _MARKS),
        "lexicon_words_without_probability": _some(vocabulary.words - unigrams),
    }
    if args.dev:
        report["dev"] = _dev(out, args.dev, args.lang)
    if settings.rescores:
        first = args.out / FIRST_PASS
        report["first_pass"] = _first_pass(settings, out, vocabulary, first)
        report["first_pass"]["ngrams"] = arpa.check(first)
        if args.dev:
            report["first_pass"]["perplexity"] = _dev(first, args.dev, args.lang)["perplexity"]
    write_text(args.out / "report.json", json.dumps(report, indent=2) + "\n")
    _say(report)
    return 0


def _first_pass(settings: Lm, full: Path, vocabulary: Vocabulary, out: Path) -> dict[str, Any]:
    """Write the model of the graph, given or pruned."""
    if settings.first_pass_arpa:
        given = Path(settings.first_pass_arpa)
        differ = first_pass.take(path=given, full=full, known=vocabulary.words, out=out)
        return {"source": settings.first_pass_arpa, **differ}
    assert settings.first_pass_threshold is not None
    prune(full, settings.first_pass_threshold, out)
    return {}


FULL, FIRST_PASS = "full.arpa.gz", "first_pass.arpa.gz"


def build(
    settings: Lm, *, text: Path, dev: Path | None, lang: Path, out: Path, memory: int | None = None
) -> dict[str, Any]:
    """Write the language model that the config asks for; returns what was made of which text.

    `memory`: bytes that training may take.
    """
    if not settings.sources:
        return {"corpus": _one(settings, text, lang, out, settings.arpa, memory)}
    if dev is None:
        raise UserError("lm.sources: weights need a development text", fix="Give --dev")
    report: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        models: dict[str, Path] = {}
        for name, source in {"corpus": str(text), **settings.sources}.items():
            given = settings.arpa if name == "corpus" else source if _is_model(source) else None
            models[name] = Path(folder) / f"{len(models)}.arpa.gz"
            report[name] = _one(settings, Path(source), lang, models[name], given, memory)
            report[name]["dev"] = _dev(models[name], dev, lang)
        weights = mix_tuned(models, list(Vocabulary.of_lang(lang).map(dev)), out)
    for name, weight in weights.items():
        report[name]["weight"] = round(weight, 4)
    return report


def _is_model(source: str) -> bool:
    """Whether a source is an ARPA file instead of a text.

    Raises:
        UserError: it is none, but called so.
    """
    found = is_arpa(Path(source))
    if not found and source.endswith((".arpa", ".arpa.gz")):
        raise UserError(
            "called .arpa, but no ARPA language model: \\data\\ is missing",
            where=source,
            fix="Call a text otherwise",
        )
    return found


def _one(
    settings: Lm, text: Path, lang: Path, out: Path, given: str | None, memory: int | None
) -> dict[str, Any]:
    """One source: an ARPA file, checked, or a model trained on a text."""
    if given:
        counts = arpa.check(Path(given))
        train.write(out, counts, arpa.read(Path(given)))
        return {"source": given, "order": len(counts)}
    vocabulary = Vocabulary.of_lang(lang)
    order = train.train(
        text,
        vocabulary,
        settings.order,
        out,
        settings.tool,
        memory,
        settings.cutoffs,
        settings.discounts,
    )
    return {"source": str(text), "order": order, "text": vocabulary.report()}


_MARKS = {arpa.BOS, arpa.EOS, arpa.UNK}


def _some(words: Set[str], limit: int = 50) -> dict[str, Any]:
    return {"count": len(words), "words": sorted(words)[:limit]}


def _dev(model: Path, text: Path, lang: Path) -> dict[str, Any]:
    vocabulary = Vocabulary.of_lang(lang)
    result = perplexity.score(backoff.load(model), vocabulary.map(text))
    return vocabulary.report() | {
        "perplexity": result.perplexity,
        "sentences": result.sentences,
        "not_in_model": result.oov,
    }


def _say(report: dict[str, Any]) -> None:
    for source in report["sources"].values():
        text = source.get("text", {})
        if text.get("oov"):
            print(
                f"warning: {text['oov']} of {text['words']} words of {source['source']} are not in"
                f" the lexicon, such as {', '.join(list(text['oov_words'])[:5])}; see report.json",
                file=sys.stderr,
            )
        if "weight" in source:
            print(f"{source['source']}: weight {source['weight']:.3f}", file=sys.stderr)
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
