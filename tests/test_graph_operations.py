"""The operations on graphs by themselves: the same paths at the same costs before and after."""

from __future__ import annotations

import itertools
from pathlib import Path

import kaldifst
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hadpsgd.gmm import transition_model
from hadpsgd.gmm.transition_model import TransitionModel
from hadpsgd.graph import arrays
from hadpsgd.graph.arrays import ARC, Arrays, assemble
from hadpsgd.graph.operations import add_self_loops, push_special, remove_symbols


@pytest.fixture(scope="module")
def model(shared: Path) -> TransitionModel:
    return transition_model.read(shared / "kaldi_an4/exp/tri3b/final.mdl")


def random_graph(draw: st.DrawFn, symbols: int) -> Arrays:
    """A small acyclic graph; state 0 starts, the last state ends."""
    size = draw(st.integers(2, 6))
    count = draw(st.integers(1, 12))
    arcs = np.zeros(count + size - 1, ARC)
    sources = np.zeros(len(arcs), np.int64)
    for i in range(len(arcs)):
        low = draw(st.integers(0, size - 2)) if i < count else i - count
        high = draw(st.integers(low + 1, size - 1)) if i < count else low + 1
        sources[i] = low
        arcs[i] = (
            draw(st.integers(0, symbols)),
            draw(st.integers(0, 3)),
            draw(st.integers(0, 40)) / 8,
            high,
        )
    final = np.full(size, np.inf, np.float32)
    final[-1] = draw(st.integers(0, 8)) / 8
    return assemble(0, final, sources, arcs)


def all_paths(graph: Arrays) -> list[tuple[tuple[int, ...], tuple[int, ...], float]]:
    """(inputs, outputs, cost) of every path, epsilons left out."""
    found = []

    def walk(state: int, inputs: tuple[int, ...], outputs: tuple[int, ...], cost: float) -> None:
        if np.isfinite(graph.final[state]):
            found.append((inputs, outputs, cost + float(graph.final[state])))
        for arc in graph.arcs[graph.first[state] : graph.first[state + 1]]:
            if arc["next"] == state:
                continue  # self-loops are looked at elsewhere
            i, o = int(arc["ilabel"]), int(arc["olabel"])
            walk(
                int(arc["next"]),
                inputs + ((i,) if i else ()),
                outputs + ((o,) if o else ()),
                cost + float(arc["weight"]),
            )

    walk(graph.start, (), (), 0.0)
    return sorted(found)


@st.composite
def graphs(draw: st.DrawFn, symbols: int = 4) -> Arrays:
    return random_graph(draw, symbols)


def same_paths(
    a: list[tuple[tuple[int, ...], tuple[int, ...], float]],
    b: list[tuple[tuple[int, ...], tuple[int, ...], float]],
) -> bool:
    return len(a) == len(b) and all(
        x[:2] == y[:2] and abs(x[2] - y[2]) < 1e-3 for x, y in zip(a, b, strict=True)
    )


def best_by_label(
    paths: list[tuple[tuple[int, ...], tuple[int, ...], float]],
) -> list[tuple[tuple[int, ...], tuple[int, ...], float]]:
    best: dict[tuple[tuple[int, ...], tuple[int, ...]], float] = {}
    for inputs, outputs, cost in paths:
        best[inputs, outputs] = min(cost, best.get((inputs, outputs), np.inf))
    return sorted((i, o, cost) for (i, o), cost in best.items())


@given(graphs())
@settings(max_examples=50)
def test_arrays_pass_through_kaldifst_unchanged(graph: Arrays) -> None:
    back = arrays.from_fst(arrays.to_fst(graph))
    assert back.start == graph.start
    assert np.array_equal(back.final, graph.final)
    assert np.array_equal(back.first, graph.first)
    assert np.array_equal(back.arcs, graph.arcs)


@given(graphs())
@settings(max_examples=50)
def test_push_special_keeps_the_cost_of_every_path(graph: Arrays) -> None:
    fst = arrays.to_fst(graph)
    kaldifst.connect(fst)
    graph = arrays.from_fst(fst)
    pushed = push_special(graph)
    assert same_paths(best_by_label(all_paths(graph)), best_by_label(all_paths(pushed)))


def test_push_special_evens_what_leaves_a_state(shared: Path) -> None:
    graph = push_special(arrays.read(shared / "kaldi_an4/lang/G.fst"), delta=1e-3)
    mass = np.bincount(
        graph.sources, np.exp(-graph.arcs["weight"].astype(float)), len(graph.final)
    ) + np.exp(-graph.final.astype(float))
    assert mass.max() / mass.min() < 1.002


def test_symbols_become_epsilon() -> None:
    arcs = np.array([(5, 1, 0.0, 1), (7, 2, 0.0, 1)], ARC)
    graph = assemble(0, np.array([np.inf, 0.0], np.float32), np.zeros(2, np.int64), arcs)
    assert remove_symbols(graph, [7]).arcs["ilabel"].tolist() == [5, 0]


@given(graph=graphs(symbols=40))
@settings(max_examples=60)
def test_self_loops_cost_what_the_model_says(model: TransitionModel, graph: Arrays) -> None:
    looped = add_self_loops(graph, model, 0.3)
    leave = np.zeros(model.num_ids + 1)
    loop_of = np.zeros(model.num_ids + 1, np.int64)
    for tid in range(1, model.num_ids + 1):
        state = model.state_of_id[tid]
        ids = np.arange(model.first_id[state], model.first_id[state + 1])
        loops = ids[model.is_self_loop[ids]]
        if len(loops):
            loop_of[tid] = loops[0]
            leave[tid] = -0.3 * np.log1p(-np.exp(float(model.log_probs[loops[0]])))
    wanted = [
        (inputs, outputs, cost + sum(leave[tid] for tid in inputs))
        for inputs, outputs, cost in all_paths(graph)
    ]
    assert same_paths(best_by_label(wanted), best_by_label(all_paths(looped)))
    # every state entered by a transition-id has that id's self-loop, at its price
    for state, arc in zip(looped.sources, looped.arcs, strict=True):
        if arc["ilabel"] == 0 or arc["next"] == state:
            continue
        target = int(arc["next"])
        own = looped.arcs[looped.first[target] : looped.first[target + 1]]
        loops = own[own["next"] == target]
        wanted_loop = loop_of[arc["ilabel"]]
        assert loops["ilabel"].tolist() == ([wanted_loop] if wanted_loop else [])
        if wanted_loop:
            price = -0.3 * float(model.log_probs[wanted_loop])
            assert float(loops["weight"][0]) == pytest.approx(price, abs=1e-4)


def test_assemble_sorts_arcs_by_state() -> None:
    arcs = np.zeros(4, ARC)
    arcs["ilabel"] = [1, 2, 3, 4]
    sources = np.array([1, 0, 1, 0])
    graph = assemble(0, np.zeros(2, np.float32), sources, arcs)
    assert graph.arcs["ilabel"].tolist() == [2, 4, 1, 3]
    assert graph.first.tolist() == [0, 2, 4]
    assert list(itertools.pairwise(graph.first)) == [(0, 2), (2, 4)]
