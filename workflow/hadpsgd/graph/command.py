"""`hadpsgd graph`: the decoding graph HCLG."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from itertools import takewhile
from pathlib import Path

import kaldifst

from hadpsgd import config, memory
from hadpsgd.config.decoding import Graph
from hadpsgd.corpus.lang.directory import read_symbols
from hadpsgd.corpus.lang.lexicon_fst import WORD_END, WORD_START
from hadpsgd.errors import UserError
from hadpsgd.files import atomic_folder
from hadpsgd.gmm import event_map, transition_model
from hadpsgd.graph import arrays, rescoring
from hadpsgd.graph.compile import (
    Progress,
    Scales,
    compile_graph,
    make_g,
    read_fst,
    refuse_too_large,
)
from hadpsgd.graph.spelling import with_spelling
from hadpsgd.graph.transitions import Transitions
from hadpsgd.lm.arpa import BOS, EOS, UNK, check, read, unpacked


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the stage."""
    parser.add_argument("--config", type=Path, required=True, help="config (YAML)")
    parser.add_argument(
        "--lang", type=Path, required=True, help="lang folder, or that of `hadpsgd pronunciations`"
    )
    parser.add_argument("--ali", type=Path, required=True, help="folder with tree and final.mdl")
    grammar = parser.add_mutually_exclusive_group(required=True)
    grammar.add_argument("--arpa", type=Path, help="language model (gzipped too)")
    grammar.add_argument("--g", type=Path, help="a ready G.fst instead")
    parser.add_argument(
        "--first-pass", type=Path, help="pruned model for the graph; --arpa rescores its lattices"
    )
    parser.add_argument("--spelling", type=Path, help="n-grams over the pieces of new words")
    parser.add_argument("--out", type=Path, required=True, help="folder of HCLG.fst to write")


def run(args: argparse.Namespace) -> int:
    """Write OUT/{HCLG.fst,words.txt,phones.txt,phones/,num_pdfs,transitions.npz}, rescore/."""
    if args.first_pass and not args.arpa:
        raise UserError("--first-pass needs --arpa, which rescores its lattices")
    settings = config.load(args.config).graph
    tree = event_map.read(args.ali / "tree")
    model = transition_model.read(args.ali / "final.mdl")
    words = args.lang / "words.txt"

    def grammar_of(arpa: Path) -> kaldifst.StdVectorFst:
        made = of_arpa(arpa=arpa, words=words)
        return (
            with_spelling_of(made, arpa=args.spelling, words=words, settings=settings)
            if args.spelling
            else made
        )

    grammar = read_fst(args.g) if args.g else grammar_of(args.first_pass or args.arpa)
    refuse_too_large(grammar, memory.allowed())
    scales = Scales(transition=settings.transition_scale, self_loop=settings.self_loop_scale)
    graph = compile_graph(
        args.lang, grammar, tree, model, scales, Progress(tree.width), settings.determinised
    )
    with atomic_folder(args.out) as out:
        arrays.write(graph, out / "HCLG.fst")
        for name in ("words.txt", "phones.txt"):
            shutil.copy(args.lang / name, out / name)
        shutil.copytree(args.lang / "phones", out / "phones", copy_function=shutil.copyfile)
        (out / "phones").chmod(0o755)
        (out / "num_pdfs").write_text(f"{model.num_pdfs}\n")
        Transitions.of(model).write(out / "transitions.npz")
        if args.first_pass:
            del grammar, graph  # the full model takes their place
            check_words(arpa=args.arpa, words=words)
            rescoring.write(
                out,
                old=args.first_pass,
                new=args.arpa,
                spelling=args.spelling,
                settings=settings,
            )
    return 0


def of_arpa(*, arpa: Path, words: Path) -> kaldifst.StdVectorFst:
    """G of an ARPA file, gzipped or not; words that the lang folder lacks are named and left out.

    Raises:
        UserError: the file is missing, damaged or no sound language model (`lm.arpa.check`).
    """
    check_words(arpa=arpa, words=words)
    with unpacked(arpa) as file, tempfile.TemporaryDirectory() as folder:
        return make_g(arpa=file, words=words, out=Path(folder) / "G.fst")


def check_words(*, arpa: Path, words: Path) -> None:
    """Check an ARPA file, and name its words that the lang folder lacks.

    Raises:
        UserError: the file is missing, damaged or no sound language model (`lm.arpa.check`).
    """
    check(arpa)
    unigrams = takewhile(lambda ngram: len(ngram.words) == 1, read(arpa))
    named = {ngram.words[0] for ngram in unigrams} - {BOS, EOS, UNK}
    if lacking := sorted(named - read_symbols(words).keys()):
        print(
            f"warning: {arpa}: {len(lacking)} of {len(named)} words lack a pronunciation and are"
            f" left out: {', '.join(lacking[:10])}",
            file=sys.stderr,
        )


def with_spelling_of(
    grammar: kaldifst.StdVectorFst, *, arpa: Path, words: Path, settings: Graph
) -> kaldifst.StdVectorFst:
    """A grammar of known words that spells others.

    Raises:
        UserError: lang folder or language model were not made for it.
    """
    numbers = read_symbols(words)
    if not {WORD_START, WORD_END} <= numbers.keys():
        raise UserError("no words are spelled here", where=words, fix="Leave --spelling out")
    made = with_spelling(
        arrays.from_fst(grammar),
        arrays.from_fst(of_arpa(arpa=arpa, words=words)),
        (numbers[WORD_START], numbers[WORD_END], numbers["#0"]),
        cost=settings.spelled_cost,
        scale=settings.spelling_scale,
    )
    result = arrays.to_fst(made)
    kaldifst.connect(result)
    kaldifst.arcsort(result, "ilabel")
    return result
