"""H: from transition-ids to phones in context, without self-loops (Kaldi's GetHTransducer)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hadpsgd.errors import UserError
from hadpsgd.gmm.event_map import Tree
from hadpsgd.gmm.transition_model import TransitionModel
from hadpsgd.graph.arrays import ARC, Arrays, assemble

_LOOP = 0  # the state between phones, start and end


@dataclass(frozen=True)
class _Hmm:
    """Transitions of one phone with its pdfs: entering, inside, leaving.

    inside and leaving count HMM states from 0; transition-id and cost come last.
    """

    entering: tuple[tuple[int, int, float], ...]
    inside: tuple[tuple[int, int, int, float], ...]
    num_states: int


class _Hmms:
    """Makes the HMM of a phone window once for all windows that share its pdfs."""

    def __init__(self, model: TransitionModel, tree: Tree, transition_scale: float) -> None:
        self.model, self.tree = model, tree
        self.states = {tuple(row): i for i, row in enumerate(model.tuples.tolist())}
        # a probability without the self-loop: all that leaves the state, made to sum to one
        loops = np.zeros(len(model.tuples))
        ids = np.flatnonzero(model.is_self_loop)
        loops[model.state_of_id[ids]] = np.exp(model.log_probs[ids].astype(np.float64))
        leaving = np.log(np.maximum(1.0 - loops, 1e-10))
        costs = -transition_scale * (model.log_probs[1:] - leaving[model.state_of_id[1:]])
        self.costs = np.concatenate([[0.0], costs])

    def pdfs(self, window: Sequence[int]) -> tuple[int, ...]:
        """The phone of a window and the pdf of each of its pdf-classes: what decides its HMM."""
        phone = window[self.tree.position]
        found = [
            self.tree.pdf(tuple(window), pdf_class)
            for pdf_class in range(self.model.topology.num_pdf_classes(phone))
        ]
        if None in found:
            raise UserError(f"the tree has no pdf for phones {list(window)}", fix=_DIFFERENT)
        return (phone, *(pdf for pdf in found if pdf is not None))

    def make(self, key: tuple[int, ...]) -> _Hmm:
        """The HMM of a phone with its pdfs."""
        phone, *pdfs = key
        entry = self.model.topology.states(phone)
        arcs = []
        for number, state in enumerate(entry[:-1]):
            row = (phone, number, pdfs[state.forward_pdf_class], pdfs[state.self_loop_pdf_class])
            if row not in self.states:
                raise UserError(f"the model lacks transition-state {row}", fix=_DIFFERENT)
            first = int(self.model.first_id[self.states[row]])
            arcs += [
                (number, target, first + i, float(self.costs[first + i]))
                for i, (target, _) in enumerate(state.transitions)
                if target != number
            ]
        entering = tuple(arc[1:] for arc in arcs if arc[0] == 0)
        reentered = any(arc[1] == 0 for arc in arcs)
        inside = tuple(arc for arc in arcs if arc[0] > 0 or reentered)
        return _Hmm(entering, inside, len(entry) - 1)


_DIFFERENT = "tree, final.mdl and lang folder must come from the same training"


def make_h(
    windows: Sequence[Sequence[int]], model: TransitionModel, tree: Tree, transition_scale: float
) -> tuple[Arrays, list[int]]:
    """H for the phone windows of a context transducer, and its disambiguation symbols.

    `windows[i]` is what output label i stands for: a window of phone-ids, or (-symbol,) for a
    disambiguation symbol, which gets an input label above the transition-ids.

    Raises:
        UserError: tree, model and windows do not fit.
    """
    hmms = _Hmms(model, tree, transition_scale)
    disambig: list[int] = []
    rows: list[tuple[int, int, int, float, int]] = []
    made: dict[tuple[int, ...], tuple[_Hmm, int]] = {}
    num_states = 1
    for label, window in enumerate(windows):
        if label == 0:
            continue
        if len(window) == 1 and window[0] <= 0:
            disambig.append(model.num_ids + 1 + len(disambig))
            rows.append((_LOOP, disambig[-1], label, 0.0, _LOOP))
            continue
        key = hmms.pdfs(window)
        if key not in made:
            made[key] = hmms.make(key), num_states
            rows += _inside(*made[key])
            num_states += made[key][0].num_states
        hmm, base = made[key]
        rows += [
            (_LOOP, tid, label, cost, _state(base, target, hmm))
            for target, tid, cost in hmm.entering
        ]
    columns = list(zip(*rows, strict=True)) if rows else [()] * 5
    arcs = np.empty(len(rows), ARC)
    for name, column in zip(("ilabel", "olabel", "weight", "next"), columns[1:], strict=True):
        arcs[name] = column
    final = np.full(num_states, np.inf, np.float32)
    final[_LOOP] = 0.0
    return assemble(_LOOP, final, np.array(columns[0], np.int64), arcs), disambig


def _state(base: int, state: int, hmm: _Hmm) -> int:
    return _LOOP if state == hmm.num_states else base + state


def _inside(hmm: _Hmm, base: int) -> Iterator[tuple[int, int, int, float, int]]:
    for source, target, tid, cost in hmm.inside:
        yield base + source, tid, 0, cost, _state(base, target, hmm)
