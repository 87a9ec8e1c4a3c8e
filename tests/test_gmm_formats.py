"""Kaldi's model and tree, read and rewritten byte for byte; the tables of transition-ids."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import cast

import kaldi_io
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hadpsgd.errors import UserError
from hadpsgd.gmm import diag_gmm, event_map, model, transition_model
from hadpsgd.gmm.event_map import Leaf, Node, Split, Table, Tree
from hadpsgd.gmm.transition_model import TransitionModel
from hadpsgd.kaldi_binary import Reader, Writer


def show_transitions(model: TransitionModel, names: dict[int, str]) -> str:
    """The text that Kaldi's show-transitions prints."""
    lines = []
    for state, (phone, hmm_state, pdf, _) in enumerate(model.tuples):
        lines.append(
            f"Transition-state {state + 1}: phone = {names[phone]} hmm-state = {hmm_state} "
            f"pdf = {pdf}"
        )
        for tid in range(model.first_id[state], model.first_id[state + 1]):
            probability = float(np.float32(math.exp(model.log_probs[tid])))
            loop = model.is_self_loop[tid]
            where = "self-loop" if loop else f"{hmm_state} -> {model.target_of_id[tid]}"
            lines.append(f" Transition-id = {tid} p = {probability:.6g} [{where}]")
    return "\n".join(lines) + "\n"


def test_transition_tables_equal_kaldis(shared: Path) -> None:
    kaldi = shared / "kaldi_an4"
    transitions = transition_model.read(kaldi / "exp/tri3b/final.mdl")
    table = (kaldi / "lang/phones.txt").read_text().split()
    names = dict(zip(map(int, table[1::2]), table[::2], strict=True))
    assert (
        show_transitions(transitions, names) == (kaldi / "golden/show_transitions.txt").read_text()
    )


def test_alignment_to_pdf_equals_kaldis(shared: Path) -> None:
    kaldi = shared / "kaldi_an4"
    pdf = transition_model.read(kaldi / "exp/tri3b_ali/final.mdl").pdf
    golden = {
        words[0]: np.array(words[1:], int)
        for words in map(str.split, (kaldi / "golden/ali_pdf_train50.txt").open())
    }
    ours = {
        utterance: pdf[ids]
        for utterance, ids in kaldi_io.read_vec_int_ark(str(kaldi / "exp/tri3b_ali/ali.1.gz"))
        if utterance in golden
    }
    assert len(golden) == len(ours) == 50
    for utterance, pdfs in golden.items():
        np.testing.assert_array_equal(ours[utterance], pdfs)


@pytest.mark.parametrize("name", ["exp/tri3b/final.mdl", "exp/tri3b_ali/final.alimdl"])
def test_transition_model_is_rewritten_byte_for_byte(shared: Path, name: str) -> None:
    reader = Reader.open(shared / "kaldi_an4" / name)
    transitions = transition_model.read_from(reader)
    writer = Writer()
    transition_model.write_to(transitions, writer)
    assert writer.content() == reader.content[: reader.position]


@pytest.mark.parametrize("kept", [1, 3, 40, 700, 3000, 30000])
def test_cut_model_is_one_clear_line(shared: Path, tmp_path: Path, kept: int) -> None:
    cut = tmp_path / "final.mdl"
    cut.write_bytes((shared / "kaldi_an4/exp/tri3b/final.mdl").read_bytes()[:kept])
    with pytest.raises(UserError, match=r"final\.mdl: .*(cut short|missing|binary)"):
        transition_model.read(cut)


def test_a_text_model_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "final.mdl"
    text.write_text("<TransitionModel> <Topology>\n")
    with pytest.raises(UserError, match="not a binary Kaldi file"):
        transition_model.read(text)


MODELS = ["exp/tri3b/final.mdl", "exp/tri3b/final.alimdl", "exp/tri3b_ali/final.mdl"]


@pytest.mark.parametrize("name", MODELS)
def test_model_is_rewritten_byte_for_byte(shared: Path, name: str) -> None:
    path = shared / "kaldi_an4" / name
    assert model.content(model.read(path)) == path.read_bytes()


def test_normalisers_equal_kaldis(shared: Path) -> None:
    kaldi = model.read(shared / "kaldi_an4" / MODELS[0]).mixtures
    sizes = np.diff(kaldi.offsets)
    ours = diag_gmm.make(sizes, kaldi.weights, kaldi.means, kaldi.variances)
    np.testing.assert_allclose(ours.gconsts, kaldi.gconsts, atol=1e-3)


def test_tree_is_rewritten_byte_for_byte(shared: Path) -> None:
    path = shared / "kaldi_an4/exp/tri3b/tree"
    tree = event_map.read(path)
    assert event_map.content(tree) == path.read_bytes()
    assert (tree.width, tree.position, tree.num_pdfs) == (3, 1, 424)


def test_tree_gives_the_tuples_of_kaldis_model(shared: Path) -> None:
    kaldi = transition_model.read(shared / "kaldi_an4/exp/tri3b/final.mdl")
    tree = event_map.read(shared / "kaldi_an4/exp/tri3b/tree")
    ours = transition_model.make(tree, kaldi.topology)
    np.testing.assert_array_equal(ours.tuples, kaldi.tuples)
    np.testing.assert_allclose(np.exp(ours.log_probs[1:5]), 0.25)


def _trees(depth: int) -> st.SearchStrategy[Node]:
    leaf = st.builds(Leaf, st.integers(0, 9))
    if depth == 0:
        return leaf
    below = _trees(depth - 1)
    keys, values = st.integers(-1, 2), st.frozensets(st.integers(0, 3), min_size=1)
    split = st.builds(Split, keys, values.map(lambda found: tuple(sorted(found))), below, below)
    table = st.builds(Table, keys, st.lists(st.none() | below, min_size=4, max_size=4).map(tuple))
    return leaf | split | table


@settings(max_examples=60)
@given(root=_trees(3))
def test_any_tree_survives_writing(root: Node, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("tree") / "tree"
    tree = Tree(width=3, position=1, root=root)
    path.write_bytes(event_map.content(tree))
    assert event_map.read(path) == tree
    windows = itertools.product(range(4), repeat=3)
    seen = {tree.pdf((a, 2, b), 1) for a, centre, b in windows if centre == 2} - {None}
    assert seen <= event_map.answers(root, {1: 2, -1: 1})


def test_a_tree_without_end_is_refused(tmp_path: Path) -> None:
    """As deep as it may be, it is read and asked."""
    path, root = tmp_path / "tree", cast(Node, Leaf(1))
    for _ in range(event_map.DEEPEST):
        root = Split(0, (1,), Leaf(0), root)
    path.write_bytes(event_map.content(Tree(width=3, position=1, root=root)))
    tree = event_map.read(path)
    assert (tree.num_pdfs, event_map.answers(tree.root, {})) == (2, {0, 1})
    path.write_bytes(
        event_map.content(Tree(width=3, position=1, root=Split(0, (1,), Leaf(0), root)))
    )
    with pytest.raises(UserError, match="more than 250 questions one below another"):
        event_map.read(path)
