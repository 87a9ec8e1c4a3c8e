"""HMM states that a transcript may pass through: what Viterbi aligns frames to.

Kaldi's compile-train-graphs, without transition probabilities: they change while a model is
trained and are added when it aligns. A state emits the pdf of its HMM state, self-loop included.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hadpsgd.errors import UserError
from hadpsgd.gmm.event_map import Tree
from hadpsgd.gmm.phone_graph import Lexicon, PhoneGraph
from hadpsgd.gmm.transition_model import TransitionModel

ARC = np.dtype([("source", "<i4"), ("target", "<i4"), ("id", "<i4"), ("cost", "<f4")])
START = 0
NO_ID = 0


@dataclass(frozen=True)
class Graph:
    """States and arcs of an utterance; state 0 is the start and emits nothing.

    pdfs: int32 [states], -1 for the start.
    arcs: ARC [arcs] sorted by target, self-loops included; id is the transition-id taken when
    the arc is passed, which leaves `source` (0 from the start).
    ends: ARC [ends], from the states in which the utterance may end (target is unused).
    """

    pdfs: NDArray[np.int32]
    arcs: NDArray[np.void]
    ends: NDArray[np.void]

    @property
    def is_empty(self) -> bool:
        """The transcript has no path."""
        return len(self.ends) == 0


@dataclass(frozen=True)
class _Hmm:
    """One phone with its pdfs: by HMM state the pdf, and (state, target, transition-id)."""

    pdfs: tuple[int, ...]
    inside: tuple[tuple[int, int, int], ...]
    leaving: tuple[tuple[int, int], ...]


class GraphCompiler:
    """Compiles graphs for one tree and topology."""

    def __init__(self, lexicon: Lexicon, tree: Tree, model: TransitionModel) -> None:
        """Trees of at most one phone of right context are supported.

        Raises:
            UserError: the tree has a wider right context.
        """
        if tree.width - tree.position > 2:
            raise UserError(f"a tree of width {tree.width} and position {tree.position}: at most "
                            "one phone of right context is supported")  # fmt: skip
        self.lexicon, self.tree, self.model = lexicon, tree, model
        self._states = {tuple(row): i for i, row in enumerate(model.tuples.tolist())}
        self._hmms: dict[tuple[int, ...], _Hmm] = {}

    def __call__(self, words: Sequence[int]) -> Graph:
        """The graph of a transcript (word-ids)."""
        graph = self.lexicon.graph(words)
        instances = _in_context(graph, self.tree.position, self.tree.width)
        hmms = [self._hmm(window) for window, _, _ in instances.parts]
        bases = np.cumsum([1] + [len(hmm.pdfs) for hmm in hmms]).tolist()
        pdfs = [-1]
        rows = [(START, bases[part], NO_ID, cost) for part, cost in instances.starts]
        ends: list[tuple[int, int, int, float]] = []
        for (_, following, ending), hmm, base in zip(instances.parts, hmms, bases, strict=False):
            pdfs += hmm.pdfs
            rows += [(base + state, base + target, tid, 0.0) for state, target, tid in hmm.inside]
            for state, tid in hmm.leaving:
                rows += [(base + state, bases[part], tid, cost) for part, cost in following]
                if math.isfinite(ending):
                    ends.append((base + state, -1, tid, ending))
        arcs = np.array(rows, ARC)
        return Graph(
            np.array(pdfs, np.int32),
            arcs[np.argsort(arcs["target"], kind="stable")],
            np.array(ends, ARC),
        )

    def _hmm(self, window: tuple[int, ...]) -> _Hmm:
        if window not in self._hmms:
            self._hmms[window] = self._make_hmm(window)
        return self._hmms[window]

    def _make_hmm(self, window: tuple[int, ...]) -> _Hmm:
        phone = window[self.tree.position]
        states = self.model.topology.states(phone)
        pdfs: list[int] = []
        inside: list[tuple[int, int, int]] = []
        leaving: list[tuple[int, int]] = []
        for number, state in enumerate(states[:-1]):
            pdf = self.tree.pdf(window, state.forward_pdf_class)
            row = self._states.get((phone, number, pdf, pdf)) if pdf is not None else None
            if row is None or pdf is None:
                raise UserError(
                    f"tree and model have no state {number} of phone {phone} in {window}",
                    fix="Tree, final.mdl and lang folder must come from the same training",
                )
            pdfs.append(pdf)
            first = int(self.model.first_id[row])
            for offset, (target, _) in enumerate(state.transitions):
                if target == len(states) - 1:
                    leaving.append((number, first + offset))
                else:
                    inside.append((number, target, first + offset))
        return _Hmm(tuple(pdfs), tuple(inside), tuple(leaving))


@dataclass(frozen=True)
class _Instances:
    """Phone arcs in context: (window, (instance, cost) that follow, cost of ending) each."""

    starts: list[tuple[int, float]]
    parts: list[tuple[tuple[int, ...], list[tuple[int, float]], float]]


def _in_context(graph: PhoneGraph, left: int, width: int) -> _Instances:
    """Copy every phone arc for each of its contexts; context beyond the ends is phone 0."""
    looks_ahead = width > left + 1
    rights: list[tuple[int, ...]] = []
    for arc, steps in enumerate(graph.after):
        labels = {graph.phones[target] for target, _ in steps}
        if math.isfinite(graph.ends[arc]):
            labels.add(0)
        rights.append(tuple(sorted(labels)) if looks_ahead else (-1,))
    numbers: dict[tuple[int, tuple[int, ...], int], int] = {}
    queue: list[tuple[int, tuple[int, ...], int]] = []

    def enter(arc: int, before: tuple[int, ...], cost: float) -> list[tuple[int, float]]:
        found = []
        for right in rights[arc]:
            key = (arc, before, right)
            if key not in numbers:
                numbers[key] = len(numbers)
                queue.append(key)
            found.append((numbers[key], cost))
        return found

    outside = (0,) * left
    starts = [step for arc, cost in graph.starts for step in enter(arc, outside, cost)]
    parts = []
    for arc, before, right in queue:  # grows while it is read
        phone = graph.phones[arc]
        window = (*before, phone, right) if looks_ahead else (*before, phone)
        then = (*before, phone)[1:] if left else ()
        following = [
            step
            for target, cost in graph.after[arc]
            if not looks_ahead or graph.phones[target] == right
            for step in enter(target, then, cost)
        ]
        ending = graph.ends[arc] if right in (0, -1) else math.inf
        parts.append((window, following, ending))
    return _Instances(starts, parts)
