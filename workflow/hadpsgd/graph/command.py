"""`hadpsgd graph`: the decoding graph HCLG."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from hadpsgd import config
from hadpsgd.files import atomic_folder
from hadpsgd.gmm import event_map, transition_model
from hadpsgd.graph import arrays
from hadpsgd.graph.compile import Progress, Scales, compile_graph, make_g, read_fst
from hadpsgd.graph.transitions import Transitions
from hadpsgd.lm.perplexity import plain


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the stage."""
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--lang", type=Path, required=True)
    parser.add_argument("--ali", type=Path, required=True, help="folder with tree and final.mdl")
    grammar = parser.add_mutually_exclusive_group(required=True)
    grammar.add_argument("--arpa", type=Path, help="language model (gzipped too)")
    grammar.add_argument("--g", type=Path, help="a ready G.fst instead")
    parser.add_argument("--out", type=Path, required=True)


def run(args: argparse.Namespace) -> int:
    """Write OUT/{HCLG.fst,words.txt,phones.txt,phones/,num_pdfs,transitions.npz}."""
    settings = config.load(args.config).graph
    tree = event_map.read(args.ali / "tree")
    model = transition_model.read(args.ali / "final.mdl")
    words = args.lang / "words.txt"
    if args.g:
        grammar = read_fst(args.g)
    else:
        with plain(args.arpa) as file, tempfile.TemporaryDirectory() as folder:
            grammar = make_g(file, words, Path(folder) / "G.fst")
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
    return 0
