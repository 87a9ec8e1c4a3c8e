"""Graphs of all transcripts, compiled and packed by the processes of a pass."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial

from hadpsgd.gmm.data import Lang
from hadpsgd.gmm.em import Passes
from hadpsgd.gmm.event_map import Tree
from hadpsgd.gmm.packed_graph import Packed, pack
from hadpsgd.gmm.training_graph import GraphCompiler
from hadpsgd.gmm.transition_model import TransitionModel
from hadpsgd.gmm.workspace import Chunk


def compile_graphs(
    passes: Passes, words: Sequence[Sequence[int]], lang: Lang, tree: Tree, model: TransitionModel
) -> None:
    """Compile and store the graphs of all utterances, whose words are word-ids.

    Raises:
        UserError: tree and model do not fit.
    """
    make = partial(_compiler, words, lang, tree, model)
    chunks = passes.each(make, "graphs of transcripts")
    passes.space.store_packed(graph for graphs in chunks for graph in graphs)
    size = passes.space.graph_bytes
    print(f"graphs of transcripts: {size / 1e6:.1f} MB of scratch space", file=sys.stderr)


def _compiler(
    words: Sequence[Sequence[int]], lang: Lang, tree: Tree, model: TransitionModel
) -> Callable[[Chunk], list[Packed]]:
    compiler = GraphCompiler(lang.lexicon, tree, model)

    def compile_chunk(chunk: Chunk) -> list[Packed]:
        return [pack(compiler(ids)) for ids in words[chunk.first : chunk.last]]

    return compile_chunk
