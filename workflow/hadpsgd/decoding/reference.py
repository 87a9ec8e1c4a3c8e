"""The best path of given words through a decoding graph: what the search should have found.

The graph is composed with the words, so that the path costs exactly what the search would have
paid for it. If it is cheaper than the path that was found, the search lost it (a search error);
otherwise the models prefer other words (a model error).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import kaldifst
import numpy as np
from numpy.typing import NDArray

from hadpsgd.decoding.lattice import Path as LatticePath
from hadpsgd.decoding.lattice import Scaling, best_paths
from hadpsgd.decoding.rescore import Rescorer
from hadpsgd.decoding.said import Said
from hadpsgd.decoding.search import Scores, all_paths
from hadpsgd.decoding.search_graph import SearchGraph
from hadpsgd.decoding.token_passing import Beams
from hadpsgd.graph import arrays
from hadpsgd.graph.arrays import Arrays, assemble
from hadpsgd.graph.transitions import Transitions

_EVERYTHING = Beams(beam=np.inf, lattice_beam=4.0, max_active=1 << 30)
"""No path of the words is given up; the best few are kept, for costs that rescoring changes."""


@dataclass
class ReferenceGraph:
    """A decoding graph that can be narrowed down to the words of an utterance.

    free: words that may stand anywhere between the others (silence, noise).
    """

    graph: kaldifst.StdVectorFst
    transitions: Transitions
    free: tuple[int, ...]
    rescorer: Rescorer | None

    @classmethod
    def read(cls, folder: Path, free: Collection[int]) -> ReferenceGraph:
        """Read a graph folder.

        Raises:
            UserError: a file is missing or damaged.
        """
        graph = arrays.to_fst(arrays.read(folder / "HCLG.fst"))
        transitions = Transitions.read(folder / "transitions.npz")
        return cls(graph, transitions, tuple(sorted(free)), Rescorer.of_graph(folder))

    def best_paths(
        self, said: Sequence[Said], scores: Sequence[Scores], scaling: Scaling
    ) -> list[LatticePath | None]:
        """Of utterances, the best path that says what they say; None where there is none.

        Args:
            said: of each, by the numbers in words.txt.
            scores: of each, float32 [frames, pdfs], log-likelihoods, not scaled.
            scaling: how paths are judged.
        """
        graphs = [self._narrowed(each) for each in said]
        there = [i for i, graph in enumerate(graphs) if len(graph.final) and len(scores[i])]
        paths: list[LatticePath | None] = [None] * len(said)
        if not there:
            return paths
        together, starts = _side_by_side([graphs[i] for i in there])
        graph = SearchGraph.of(together)
        columns = self.transitions.pdf[graph.emitting.label].astype(np.int64)
        scale = scaling.acoustic_scale
        some = [scores[i] for i in there]
        found = all_paths(graph, columns, some, scale, _EVERYTHING, starts)
        for i, (lattice, partial) in zip(there, found, strict=True):
            if lattice is not None and not partial:
                lattice = self.rescorer(lattice) if self.rescorer else lattice
                paths[i] = best_paths(lattice, [scaling])[0]
        return paths

    def _narrowed(self, said: Said) -> Arrays:
        """All paths of the graph that say it."""
        acceptor = self._acceptor(said)
        return arrays.from_fst(kaldifst.compose(self.graph, acceptor, match_side="right"))

    def _acceptor(self, said: Said) -> kaldifst.StdVectorFst:
        """What is said, with loops of what may stand anywhere."""
        arcs = [*said.arcs, *((p, p, f) for p in range(said.end + 1) for f in self.free)]
        lines = [f"{place} {to} {label} {label}" for place, to, label in sorted(arcs)]
        acceptor = kaldifst.compile("\n".join([*lines, f"{said.end} 0.0"]) + "\n")
        kaldifst.arcsort(acceptor, "ilabel")
        return acceptor


def _side_by_side(graphs: Sequence[Arrays]) -> tuple[Arrays, NDArray[np.int64]]:
    """Graphs as one that holds them all apart, and where each of them starts."""
    sizes = [len(graph.final) for graph in graphs]
    base = np.cumsum([0, *sizes])[:-1]
    arcs = [graph.arcs.copy() for graph in graphs]
    for each, first in zip(arcs, base.tolist(), strict=True):
        each["next"] += first
    sources = [graph.sources + first for graph, first in zip(graphs, base, strict=True)]
    starts = base + np.array([graph.start for graph in graphs])
    final = np.concatenate([graph.final for graph in graphs])
    return assemble(0, final, np.concatenate(sources), np.concatenate(arcs)), starts
