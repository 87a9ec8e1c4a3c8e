"""Determinised lattices against all paths of the lattices that they are made of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lattice_problems import SCALINGS, lattices, two_words

from hadpsgd.decoding import determinise, lattice_io
from hadpsgd.decoding.adaptation import Supervision
from hadpsgd.decoding.confidence import confidences
from hadpsgd.decoding.lattice import ARC, Lattice, Scaling, best_paths
from hadpsgd.gmm.transition_model import TransitionModel

Ids = tuple[int, ...]
Said = dict[Ids, list[tuple[float, float, float, Ids]]]


def said(lat: Lattice, scaling: Scaling) -> Said:
    """(cost, graph, acoustic, transition-ids) of all paths of every word sequence."""
    found: Said = {}
    ends = np.cumsum(lat.frames).tolist()
    penalty = scaling.word_penalty

    def ids(arc: int) -> tuple[int, ...]:
        label = int(lat.arcs["ilabel"][arc])
        if lat.ids is None:
            return (label,) if label else ()
        return tuple(lat.ids[ends[arc] - label : ends[arc]].tolist())

    def walk(
        state: int, words: tuple[int, ...], graph: float, acoustic: float, path: tuple
    ) -> None:
        if np.isfinite(lat.final[state, 0]):
            g, a = graph + float(lat.final[state, 0]), acoustic + float(lat.final[state, 1])
            counted = len([word for word in words if word not in scaling.inside])
            cost = g + scaling.acoustic_scale * a + penalty * counted
            found.setdefault(words, []).append((cost, g, a, path))
        for arc in range(lat.first[state], lat.first[state + 1]):
            row = lat.arcs[arc]
            word = (int(row["olabel"]),) if row["olabel"] else ()
            costs = graph + float(row["graph"]), acoustic + float(row["acoustic"])
            walk(int(row["next"]), words + word, *costs, path + ids(arc))

    if lat.num_states:
        walk(0, (), 0.0, 0.0, ())
    return found


def check_same(lat: Lattice, small: Lattice, scaling: Scaling, beam: float) -> None:
    before, after = said(lat, scaling), said(small, scaling)
    least = {words: min(paths)[0] for words, paths in before.items()}
    best = min(least.values())
    for words, cost in least.items():
        if cost <= best + beam - 1e-4:
            assert words in after
    for words, paths in after.items():
        [(cost, graph, acoustic, path)] = paths
        assert cost == pytest.approx(least[words], abs=1e-4)
        ours = pytest.approx((cost, graph, acoustic), abs=1e-4)
        assert any(theirs[:3] == ours and theirs[3] == path for theirs in before[words])


@given(lattices(), st.sampled_from(SCALINGS), st.sampled_from([0.5, 2.0, 6.0, 1e6]))
@settings(max_examples=100, deadline=None)
def test_every_word_sequence_has_its_best_path(lat: Lattice, scaling: Scaling, beam: float) -> None:
    [(small, taken)] = determinise.determinised([lat], scaling, beam)
    assert taken == beam
    check_same(lat, small, scaling, beam)
    for state in range(small.num_states):
        labels = small.arcs["olabel"][small.first[state] : small.first[state + 1]].tolist()
        assert len(labels) == len(set(labels))
    [old], [new] = (best_paths(each, [scaling]) for each in (lat, small))
    assert new.cost == pytest.approx(old.cost, abs=1e-5)
    total = new.graph + scaling.acoustic_scale * new.acoustic
    total += scaling.begin(new.words).sum() * scaling.word_penalty
    assert total == pytest.approx(new.cost, abs=1e-5)


@given(lattices())
@settings(max_examples=50, deadline=None)
def test_determinised_lattices_come_back_from_archives(lat: Lattice) -> None:
    [(small, _)] = determinise.determinised([lat], SCALINGS[0], 6.0)
    content = lattice_io.encode(small)
    back = lattice_io.parse(content)
    assert back.ids is not None and small.ids is not None
    assert np.array_equal(back.final, small.final) and np.array_equal(back.first, small.first)
    assert np.array_equal(back.arcs, small.arcs) and np.array_equal(back.ids, small.ids)
    for size in range(0, len(content), 7):
        with pytest.raises((EOFError, ValueError)):
            lattice_io.parse(content[:size])


def test_too_large_a_lattice_gets_a_narrower_beam(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its neighbours keep theirs."""
    rows = [(1, 1, 0.0, 0.0, 1), (2, 2, 0.5, 0.0, 2)]
    rows += [(1, 1, 0.0, 0.0, 3), (2, 2, 0.2, 0.0, 3)] * 2
    final = np.full((4, 2), np.inf, np.float32)
    final[-1] = 0.0
    wide = Lattice(final, np.array([0, 2, 4, 6, 6]), np.array(rows, ARC))
    narrow = Lattice(final[1:], np.array([0, 1, 2, 2]), np.array(rows[:1] + rows[:1], ARC))
    narrow.arcs["next"] = 1, 2
    monkeypatch.setattr(determinise, "_ELEMENTS", 3)  # three states lie on each path
    monkeypatch.setattr(determinise, "_PER_FRAME", 0)
    first, second = determinise.determinised([narrow, wide], SCALINGS[0], 1.0)
    assert first[1] == 1.0 and set(said(first[0], SCALINGS[0])) == {(1, 1)}
    assert second[1] < 0.5
    check_same(wide, second[0], SCALINGS[0], second[1])
    assert set(said(second[0], SCALINGS[0])) == {(1, 1), (1, 2)}


def test_paths_that_cost_the_same_end_the_narrowing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(determinise, "_ELEMENTS", 0)
    monkeypatch.setattr(determinise, "_PER_FRAME", 0)
    lat = two_words([1.0, 1.0])
    [(small, beam)] = determinise.determinised([lat], SCALINGS[0], 6.0)
    assert beam < 6.0 and set(said(small, SCALINGS[0])) == {(1, 3), (2, 3)}


def test_of_two_words_at_one_frame_each_has_its_confidence() -> None:
    rows = [(0, 1, 0.0, 0.0, 1), (0, 2, 0.0, 0.0, 2), (1, 3, 0.0, 0.0, 3), (0, 3, 9.0, 0.0, 3)]
    final = np.array([[np.inf] * 2] * 3 + [[0, 0]], np.float32)
    lat = Lattice(final, np.array([0, 1, 2, 4, 4]), np.array(rows, ARC), np.array([1], np.int32))
    path = best_paths(lat, SCALINGS[:1])[0]
    assert path.words.tolist() == [1, 2, 3] and path.word_frames.tolist() == [0, 0, 0]
    assert confidences(lat, path, SCALINGS[0]) == pytest.approx([1.0] * 3)


def test_the_only_words_are_sure() -> None:
    """Their lattice is a chain, as a search's best path is, which says nothing of others."""
    lat = two_words([0.0, 20.0])
    [(small, _)] = determinise.determinised([lat], SCALINGS[0], 6.0)
    path = best_paths(small, SCALINGS[:1])[0]
    assert confidences(small, path, SCALINGS[0]) == pytest.approx([1.0, 1.0])


def test_posteriors_of_frames_are_those_of_the_words_paths() -> None:
    """As FMLLR asks for them: two paths of two frames, one three times as likely."""
    rows = [(2, 1, 0.0, 0.0, 1), (2, 2, float(np.log(3.0)), 0.0, 1)]
    final = np.array([[np.inf, np.inf], [0, 0]], np.float32)
    ids = np.array([1, 2, 1, 3], np.int32)
    lat = Lattice(final, np.array([0, 2, 2]), np.array(rows, ARC), ids)
    transitions = SimpleNamespace(
        num_ids=3, num_pdfs=3, pdf=np.array([-1, 0, 1, 2]), phone=np.array([0, 1, 1, 1])
    )
    found = Supervision(cast(TransitionModel, transitions), SCALINGS[0], quiet=())(lat)
    assert found.frames.tolist() == [0, 1, 1] and found.pdfs.tolist() == [0, 1, 2]
    assert found.weights.tolist() == pytest.approx([1.0, 0.75, 0.25])
