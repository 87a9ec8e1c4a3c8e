"""`hadpsgd graph`: the decoding graph HCLG."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import kaldifst

from hadpsgd import config
from hadpsgd.errors import UserError
from hadpsgd.files import atomic_folder
from hadpsgd.gmm import event_map, transition_model
from hadpsgd.graph import arrays
from hadpsgd.graph.compile import Progress, Scales, compile_graph, make_g, read_fst
from hadpsgd.graph.transitions import Transitions
from hadpsgd.lm.arpa import unpacked


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the stage."""
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--lang", type=Path, required=True)
    parser.add_argument("--ali", type=Path, required=True, help="folder with tree and final.mdl")
    grammar = parser.add_mutually_exclusive_group(required=True)
    grammar.add_argument("--arpa", type=Path, help="language model (gzipped too)")
    grammar.add_argument("--g", type=Path, help="a ready G.fst instead")
    parser.add_argument(
        "--first-pass", type=Path, help="pruned model for the graph; --arpa rescores its lattices"
    )
    parser.add_argument("--out", type=Path, required=True)


def run(args: argparse.Namespace) -> int:
    """Write OUT/{HCLG.fst,words.txt,phones.txt,phones/,num_pdfs,transitions.npz}, rescore/."""
    if args.first_pass and not args.arpa:
        raise UserError("--first-pass needs --arpa, which rescores its lattices")
    settings = config.load(args.config).graph
    tree = event_map.read(args.ali / "tree")
    model = transition_model.read(args.ali / "final.mdl")
    words = args.lang / "words.txt"
    grammar = read_fst(args.g) if args.g else grammar_of(args.first_pass or args.arpa, words)
    scales = Scales(settings.transition_scale, settings.self_loop_scale)
    graph = compile_graph(args.lang, grammar, tree, model, scales, Progress())
    with atomic_folder(args.out) as out:
        arrays.write(graph, out / "HCLG.fst")
        for name in ("words.txt", "phones.txt"):
            shutil.copy(args.lang / name, out / name)
        shutil.copytree(args.lang / "phones", out / "phones", copy_function=shutil.copyfile)
        (out / "phones").chmod(0o755)
        (out / "num_pdfs").write_text(f"{model.num_pdfs}\n")
        Transitions.of(model).write(out / "transitions.npz")
        if args.first_pass:
            (out / "rescore").mkdir()
            for name, model in (("old", args.first_pass), ("new", args.arpa)):
                made = arrays.from_fst(grammar_of(model, words))
                arrays.write(made, out / "rescore" / f"{name}.fst")
    return 0


def grammar_of(arpa: Path, words: Path) -> kaldifst.StdVectorFst:
    """G of an ARPA file, gzipped or not."""
    with unpacked(arpa) as file, tempfile.TemporaryDirectory() as folder:
        return make_g(file, words, Path(folder) / "G.fst")
