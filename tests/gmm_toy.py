"""A small GMM-HMM and data for it: phones of three states in a row, one Gaussian each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hadpsgd.corpus.lang.topology import State, Topology
from hadpsgd.gmm import diag_gmm, transition_model
from hadpsgd.gmm.event_map import Tree
from hadpsgd.gmm.model import Model
from hadpsgd.gmm.training_graph import ARC, Graph
from hadpsgd.gmm.tree_roots import Root, stub

STATES = 3


@dataclass(frozen=True)
class Toy:
    """Phones count from 1; those of `means` [phones, states, dim] have variance 1."""

    tree: Tree
    model: Model

    @property
    def phones(self) -> int:
        return self.tree.num_pdfs // STATES

    def first_ids(self, phone: int) -> NDArray[np.int32]:
        """Of each state the transition-id of its self-loop; the next one leaves it."""
        return self.model.transitions.first_id[self._rows(phone)]

    def graph(self, phone: int) -> Graph:
        """The graph of an utterance that is this phone."""
        pdfs = self.model.transitions.tuples[self._rows(phone), 2]
        arcs = [(0, 1, 0, 0.0)]
        for state, loop in enumerate(self.first_ids(phone), 1):
            arcs.append((state, state, loop, 0.0))
            if state < STATES:
                arcs.append((state, state + 1, loop + 1, 0.0))
        table = np.array(arcs, ARC)
        ends = np.array([(STATES, -1, self.first_ids(phone)[-1] + 1, 0.0)], ARC)
        order = np.argsort(table["target"], kind="stable")
        return Graph(np.array([-1, *pdfs], np.int32), table[order], ends)

    def _rows(self, phone: int) -> list[int]:
        pairs = self.model.transitions.tuples[:, :2]
        return [int(np.flatnonzero((pairs == (phone, s)).all(axis=1))[0]) for s in range(STATES)]


def toy(means: NDArray[np.floating] | Sequence[object]) -> Toy:
    """The model of the means [phones, states, dim]."""
    wanted = np.asarray(means, np.float64)
    phones = range(1, len(wanted) + 1)
    states = tuple(
        State(forward_pdf_class=i, self_loop_pdf_class=i, transitions=((i, 0.5), (i + 1, 0.5)))
        for i in range(STATES)
    )
    index = np.array([-1, *(0 for _ in phones)], np.int32)
    topology = Topology(
        np.array(phones, np.int32),
        index,
        ((*states, State(forward_pdf_class=-1, self_loop_pdf_class=-1)),),
    )
    roots = [Root(phones=(phone,), shared=False) for phone in phones]
    tree = Tree(width=1, position=0, root=stub(roots, topology, 0))
    transitions = transition_model.make(tree, topology)
    flat = np.zeros((tree.num_pdfs, wanted.shape[-1]))
    for phone, state, pdf in transitions.tuples[:, :3].tolist():
        flat[pdf] = wanted[phone - 1, state]
    ones = np.ones(tree.num_pdfs)
    mixtures = diag_gmm.make(np.ones(tree.num_pdfs, int), ones, flat, np.ones_like(flat))
    return Toy(tree, Model(transitions, mixtures))
