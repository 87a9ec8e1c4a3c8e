"""The best path of given words through a decoding graph: what the search should have found.

The graph is composed with the words, so that the path costs exactly what the search would have
paid for it. If it is cheaper than the path that was found, the search lost it (a search error);
otherwise the models prefer other words (a model error).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import kaldifst
import numpy as np
from numpy.typing import NDArray

from hadpsgd.decoding.exhaustive import Exhaustive
from hadpsgd.decoding.lanes import Lanes
from hadpsgd.decoding.lattice import Lattice, Scaling, best_paths
from hadpsgd.decoding.lattice import Path as LatticePath
from hadpsgd.decoding.rescore import Rescorer
from hadpsgd.decoding.said import Said
from hadpsgd.decoding.scores import LongScores, Matrix, Scores
from hadpsgd.decoding.search import all_paths
from hadpsgd.decoding.search_graph import SearchGraph
from hadpsgd.decoding.token_passing import Beams
from hadpsgd.distinct import distinct
from hadpsgd.graph import arrays
from hadpsgd.graph.arrays import Arrays, assemble
from hadpsgd.graph.transitions import Transitions

_LATTICE_BEAM = 4.0
"""The best few paths are kept where rescoring changes their costs."""


@dataclass
class ReferenceGraph:
    """A decoding graph that can be narrowed down to the words of an utterance.

    free: words that may stand anywhere between the others (silence, noise).
    """

    graph: kaldifst.StdFst
    transitions: Transitions
    free: tuple[int, ...]
    rescorer: Rescorer | None

    @classmethod
    def read(cls, folder: Path, free: Collection[int]) -> ReferenceGraph:
        """Read a graph folder.

        Raises:
            UserError: a file is missing or damaged.
        """
        path = folder / "HCLG.fst"
        graph = arrays.read(path)
        transitions = Transitions.read(folder / "transitions.npz")
        transitions.check_graph(graph, path)
        return cls(
            arrays.to_const(graph), transitions, tuple(sorted(free)), Rescorer.of_graph(folder)
        )

    def best_paths(
        self, said: Sequence[Said], scores: Sequence[Scores], scaling: Scaling
    ) -> list[LatticePath | None]:
        """Of utterances, the best path that says what they say; None where there is none.

        Args:
            said: of each, by the numbers in words.txt.
            scores: of each, float32 [frames, pdfs], log-likelihoods, not scaled.
            scaling: how paths are judged.
        """
        graphs = [self._narrowed_to(each, scaling) for each in said]
        there = [i for i, graph in enumerate(graphs) if graph.num_states and len(scores[i])]
        paths: list[LatticePath | None] = [None] * len(said)
        if not there:
            return paths
        search = self._best_few if self.rescorer else self._best
        found = search([graphs[i] for i in there], [scores[i] for i in there], scaling)
        for i, lattice in zip(there, found, strict=True):
            if lattice is not None:
                path = best_paths(lattice, [Scaling(acoustic_scale=scaling.acoustic_scale)])[0]
                begun = int(scaling.begin(path.words).sum())  # the graph has their penalties
                paths[i] = replace(path, graph=path.graph - scaling.word_penalty * begun)
        return paths

    def _best(
        self, graphs: Sequence[kaldifst.StdVectorFst], scores: Sequence[Scores], scaling: Scaling
    ) -> Iterator[Lattice | None]:
        """Of each graph a lattice of its best path; None where none reaches the end."""
        pdf, scale = self.transitions.pdf, scaling.acoustic_scale
        for fst, matrix in zip(graphs, scores, strict=True):
            graph = arrays.from_fst(fst)
            own, some = _narrowed(graph, pdf, matrix)
            yield Exhaustive(graph, own, some, scale).best()

    def _best_few(
        self, graphs: Sequence[kaldifst.StdVectorFst], scores: Sequence[Scores], scaling: Scaling
    ) -> Iterator[Lattice | None]:
        """The same with the best paths of a rescored lattice, searched side by side."""
        assert self.rescorer is not None
        together, starts = _side_by_side([arrays.from_fst(graph) for graph in graphs])
        graph = SearchGraph.of(together)
        columns = self.transitions.pdf[graph.emitting.label].astype(np.int64)
        beams = Beams(beam=np.inf, lattice_beam=_LATTICE_BEAM, max_active=1 << 30)
        lanes = Lanes(scores, count=len(scores))
        found = all_paths(graph, columns, lanes, scaling.acoustic_scale, beams, starts)
        for lattice, partial in found:
            yield None if lattice is None or partial else self.rescorer(lattice)

    def _narrowed_to(self, said: Said, scaling: Scaling) -> kaldifst.StdVectorFst:
        """The graph of what is said, with what may stand anywhere; every word costs the penalty."""

        def cost(label: int) -> float:
            return 0.0 if label in scaling.inside else scaling.word_penalty

        arcs = [*said.arcs, *((p, p, f) for p in range(said.end + 1) for f in self.free)]
        # its words in any order first: the dead ends of all words are met once, not at each place
        words = _acceptor([(0, 0, label, 0.0) for label in {label for *_, label in arcs}], end=0)
        some = kaldifst.compose(self.graph, words, match_side="right")
        priced = _acceptor([(*arc, cost(arc[-1])) for arc in arcs], end=said.end)
        return kaldifst.compose(some, priced, match_side="right")


def _acceptor(arcs: Iterable[tuple[int, int, int, float]], *, end: int) -> kaldifst.StdVectorFst:
    """Of arcs (place, next place, label, cost), to the place `end`."""
    lines = [f"{place} {to} {label} {label} {cost}" for place, to, label, cost in sorted(arcs)]
    acceptor = kaldifst.compile("\n".join([*lines, f"{end} 0.0"]) + "\n")
    kaldifst.arcsort(acceptor, "ilabel")
    return acceptor


def _narrowed(
    graph: Arrays, pdf: NDArray[np.integer], scores: Scores
) -> tuple[NDArray[np.integer], Matrix]:
    """Of a long utterance the columns that a graph reads, and which is that of each
    transition-id; others as they are."""
    if not isinstance(scores, LongScores):
        return pdf, scores
    labels = graph.arcs["ilabel"]
    used = distinct(pdf[labels[labels > 0]])
    return np.minimum(used.searchsorted(pdf), len(used) - 1), scores.columns(used)


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
