"""Kaldi's model and tree, read and rewritten byte for byte; the tables of transition-ids."""

from __future__ import annotations

import math
from pathlib import Path

import kaldi_io
import numpy as np
import pytest

from hadpsgd.errors import UserError
from hadpsgd.gmm import transition_model
from hadpsgd.gmm.kaldi_binary import Reader, Writer
from hadpsgd.gmm.transition_model import TransitionModel, transition_to_pdf


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
    model = transition_model.read(kaldi / "exp/tri3b/final.mdl")
    table = (kaldi / "lang/phones.txt").read_text().split()
    names = dict(zip(map(int, table[1::2]), table[::2], strict=True))
    assert show_transitions(model, names) == (kaldi / "golden/show_transitions.txt").read_text()


def test_alignment_to_pdf_equals_kaldis(shared: Path) -> None:
    kaldi = shared / "kaldi_an4"
    pdf = transition_to_pdf(kaldi / "exp/tri3b_ali/final.mdl")
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
    model = transition_model.read_from(reader)
    writer = Writer()
    transition_model.write_to(model, writer)
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
