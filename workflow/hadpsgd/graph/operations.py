"""Operations on whole graphs that kaldifst lacks: push-special, symbol removal, self-loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from hadpsgd.distinct import distinct
from hadpsgd.gmm.transition_model import TransitionModel
from hadpsgd.graph.arrays import ARC, Arrays, assemble


def remove_symbols(graph: Arrays, symbols: list[int]) -> Arrays:
    """Turn input symbols into epsilon (Kaldi's fstrmsymbols)."""
    arcs = graph.arcs.copy()
    arcs["ilabel"][np.isin(arcs["ilabel"], symbols)] = 0
    return replace(graph, arcs=arcs)


def push_special(graph: Arrays, *, delta: float = 1e-3, max_iterations: int = 200) -> Arrays:
    """Reweight so that what leaves a state sums to the same for all states (fstpushspecial).

    Path costs stay as they are; the search prunes better. Final costs count as arcs to the start.
    """
    size = len(graph.final)
    if size == 0:
        return graph
    sources = np.concatenate([graph.sources, np.arange(size)])
    targets = np.concatenate([graph.arcs["next"], np.full(size, graph.start)])
    weights = np.concatenate([graph.arcs["weight"], graph.final]).astype(np.float64)
    matrix = csr_array((np.exp(-weights), (sources, targets)), shape=(size, size))
    mass = np.full(size, 1.0 / np.sqrt(size))
    for _ in range(max_iterations):
        step = matrix @ mass
        ratio = step / mass
        if ratio.max() / max(ratio.min(), 1e-300) - 1.0 < delta:
            break
        mass = step + 0.1 * mass
        mass /= np.linalg.norm(mass)
    potential = -np.log(mass)
    arcs = graph.arcs.copy()
    arcs["weight"] += (potential[arcs["next"]] - potential[graph.sources]).astype(np.float32)
    final = graph.final + (potential[graph.start] - potential).astype(np.float32)
    return replace(graph, arcs=arcs, final=final)


def is_deterministic(graph: Arrays) -> bool:
    """Whether no two arcs of a state have the same input, and none has none."""
    labels = graph.arcs["ilabel"]
    if not len(labels):
        return True
    inputs = graph.sources * np.int64(labels.max() + 1) + labels
    return bool(labels.min() > 0) and len(distinct(inputs)) == len(inputs)


def add_self_loops(graph: Arrays, model: TransitionModel, self_loop_scale: float = 0.1) -> Arrays:
    """Add the self-loop of the transition that enters a state (add-self-loops --reorder=true).

    Input labels are transition-ids or 0. What leaves such a state, or ends there, also pays for
    not taking the loop.
    """
    graph, entered = _same_transition_state(graph, model)
    loop = np.zeros(len(model.tuples) + 1, np.int64)
    ids = np.flatnonzero(model.is_self_loop)
    loop[model.state_of_id[ids] + 1] = ids
    stay = model.log_probs.astype(np.float64)[loop]
    leave = np.where(loop > 0, np.log(np.maximum(-np.expm1(np.minimum(stay, -1e-12)), 1e-10)), 0.0)
    leaving = (-self_loop_scale * leave)[entered].astype(np.float32)
    arcs = graph.arcs.copy()
    arcs["weight"] += leaving[graph.sources]
    looped = np.flatnonzero(loop[entered] > 0)
    loops = np.zeros(len(looped), ARC)
    loops["ilabel"] = loop[entered[looped]]
    loops["weight"] = -self_loop_scale * stay[entered[looped]]
    loops["next"] = looped
    return assemble(
        graph.start,
        graph.final + leaving,
        np.concatenate([graph.sources, looped]),
        np.concatenate([arcs, loops]),
    )


def _same_transition_state(
    graph: Arrays, model: TransitionModel
) -> tuple[Arrays, NDArray[np.int64]]:
    """Make all arcs into a state carry the same transition-state, by states in between.

    Returns the graph and int64 [states]: the transition-state (from 1) that enters; 0 is none.
    """
    size = len(graph.final)
    states = (model.state_of_id + 1)[graph.arcs["ilabel"]].astype(np.int64)
    # (state entered, transition-state) pairs; the start is entered by nothing
    stride = len(model.tuples) + 1
    entries = graph.arcs["next"] * np.int64(stride) + states
    pairs = distinct(np.append(entries, graph.start * stride))
    targets, kinds = pairs // stride, pairs % stride
    mixed = np.bincount(targets, minlength=size) > 1
    entered = np.zeros(size, np.int64)
    entered[targets[~mixed[targets]]] = kinds[~mixed[targets]]
    split = mixed[targets] & (kinds > 0)
    between = size + np.arange(np.count_nonzero(split))
    new_state = dict(zip(pairs[split].tolist(), between.tolist(), strict=True))
    arcs = graph.arcs.copy()
    moved = np.flatnonzero(mixed[arcs["next"]] & (states > 0))
    arcs["next"][moved] = [new_state[key] for key in entries[moved].tolist()]
    steps = np.zeros(len(between), ARC)
    steps["next"] = targets[split]
    result = assemble(
        graph.start,
        np.concatenate([graph.final, np.full(len(between), np.inf, np.float32)]),
        np.concatenate([graph.sources, between]),
        np.concatenate([arcs, steps]),
    )
    return result, np.concatenate([entered, kinds[split]])
