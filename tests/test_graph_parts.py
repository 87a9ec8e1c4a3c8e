"""What HCLG is made of: H's probabilities and symbols, LG evened out, the ids it may have."""

from __future__ import annotations

from pathlib import Path

import kaldifst
import numpy as np
import pytest

from hadpsgd.errors import UserError
from hadpsgd.gmm import event_map, transition_model
from hadpsgd.gmm.event_map import Tree
from hadpsgd.gmm.transition_model import TransitionModel
from hadpsgd.graph import arrays
from hadpsgd.graph.arrays import Arrays
from hadpsgd.graph.compile import compose_lg
from hadpsgd.graph.h_transducer import make_h
from hadpsgd.graph.transitions import Transitions

WINDOWS = [[0], [-500], [0, 1, 0], [0, 11, 0], [1, 12, 13], [-501]]


@pytest.fixture(scope="module")
def kaldi(shared: Path) -> tuple[TransitionModel, Tree]:
    folder = shared / "kaldi_an4/exp/tri3b"
    return transition_model.read(folder / "final.mdl"), event_map.read(folder / "tree")


def masses(graph: Arrays) -> np.ndarray:
    """Of each state the sum of the probabilities of what leaves it, or ends there."""
    arcs = np.exp(-graph.arcs["weight"].astype(float))
    return np.bincount(graph.sources, arcs, len(graph.final)) + np.exp(-graph.final.astype(float))


def test_disambiguation_symbols_of_h_are_no_transition_ids(
    kaldi: tuple[TransitionModel, Tree],
) -> None:
    model, tree = kaldi
    h, symbols = make_h(WINDOWS, model, tree, 1.0)
    assert symbols == [model.num_ids + 1, model.num_ids + 2]
    there = h.arcs["ilabel"]
    assert np.isin(symbols, there).all()
    assert there[~np.isin(there, symbols)].max() <= model.num_ids


def test_what_leaves_a_state_of_h_without_its_loop_sums_to_one(
    kaldi: tuple[TransitionModel, Tree],
) -> None:
    model, tree = kaldi
    h, _ = make_h(WINDOWS, model, tree, 1.0)
    found = masses(h)[1:]  # at 0 all phones begin; a phone's first state is entered from there
    np.testing.assert_allclose(found[found > 0], 1.0, rtol=1e-3)
    assert (found > 0).sum() >= 6


@pytest.mark.parametrize("scale", [0.0, 0.3, 1.0])
def test_transition_probabilities_of_h_are_scaled(
    kaldi: tuple[TransitionModel, Tree], scale: float
) -> None:
    model, tree = kaldi
    whole, part = (make_h(WINDOWS, model, tree, each)[0].arcs for each in (1.0, scale))
    assert part["ilabel"].tolist() == whole["ilabel"].tolist()
    np.testing.assert_allclose(part["weight"], scale * whole["weight"], rtol=1e-5, atol=1e-6)
    assert np.ptp(whole["weight"]) > 0.1


def test_lg_prunes_as_well_everywhere() -> None:
    """Kaldi's fstpushspecial: what leaves a state is as likely for all states."""
    lexicon = kaldifst.compile("0 1 1 1 0.1\n0 2 1 2 0.1\n1 0 2 0 2.5\n2 0 3 0 0.4\n0 0.0\n")
    grammar = kaldifst.compile("0 1 1 1 0.2\n0 2 2 2 1.8\n1 2 2 2 3.0\n2 0 1 1 0.3\n1 0.9\n2 2.2\n")
    lg = arrays.from_fst(compose_lg(lexicon, grammar))
    assert len(lg.final) > 3
    found = masses(lg)
    assert found.max() / found.min() < 1.01


def test_ids_beyond_the_last_are_of_another_model() -> None:
    one = np.ones(5, np.int32)
    known = Transitions(one, one, one > 0, one > 0)
    known.check(np.array([1, 4]), "lat")
    for ids in ([1, 5], [6]):
        with pytest.raises(UserError, match=f"lat: transition-id {ids[-1]}, .* ends at 4"):
            known.check(np.array(ids), "lat")
