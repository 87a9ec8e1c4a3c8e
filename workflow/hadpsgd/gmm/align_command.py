"""`hadpsgd align`: alignments of another data set with a trained model."""

from __future__ import annotations

import argparse
from pathlib import Path

from threadpoolctl import threadpool_limits

from hadpsgd.config import load
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.errors import UserError
from hadpsgd.features.frontend import Frontend
from hadpsgd.features.splice import read_splice_opts
from hadpsgd.gmm import event_map, model
from hadpsgd.gmm.data import Lang, compile_graphs, fill, word_ids
from hadpsgd.gmm.em import Passes
from hadpsgd.gmm.mono_command import add_arguments, own, search_of
from hadpsgd.gmm.pipeline import Pipeline, deltas
from hadpsgd.gmm.results import Front, Result, check_failures, check_phones, write_folder
from hadpsgd.gmm.workspace import Workspace
from hadpsgd.kaldi_binary import read_matrix


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_arguments(parser)
    parser.add_argument("--model", type=Path, required=True, help="folder of final.mdl and tree")


def read_front(folder: Path) -> Front:
    """How a model's features are made: final.mat and splice_opts, or deltas without them.

    Raises:
        UserError: the splicing is not as wide on both sides.
    """
    if not (folder / "final.mat").is_file():
        return Front()
    left, right = read_splice_opts(folder / "splice_opts")
    if left != right:
        raise UserError("contexts differ in width", where=folder / "splice_opts")
    return Front(left, read_matrix(folder / "final.mat").astype("float32"))


def pipeline_of(front: Front, dim: int) -> Pipeline:
    """The pipeline of stored features of `dim` dimensions."""
    return deltas(dim) if front.matrix is None else Pipeline(front.context, front.matrix)


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say."""
    config = load(args.config)
    options = own(config)
    lang = Lang(args.lang)
    check_phones(args.model / "phones.txt", args.lang / "phones.txt")
    trained = model.read(args.model / "final.mdl")
    tree = event_map.read(args.model / "tree")
    front = read_front(args.model)
    data = DataDir.read(args.data, audio=False)
    with threadpool_limits(1), Workspace(args.out.parent) as space:
        fill(space, data, args.feats, Frontend(0, 0))
        words = word_ids(data, space.names, lang)
        compile_graphs(space, words, lang, tree, trained.transitions)
        passes = Passes(space, pipeline_of(front, space.dim), args.jobs or options.jobs)
        outcome = passes.align(trained, search_of(options, lang))
        check_failures(outcome, len(space), options.max_failed, args.data)
        result = Result(tree, trained, front)
        write_folder(args.out, result, space, outcome, args.lang / "phones.txt")
    return 0
