"""Transition model of `final.mdl`: what a transition-id means (Kaldi's hmm/transition-model).

A transition-state is a (phone, HMM state, forward pdf, self-loop pdf) tuple, numbered from 1; a
transition-id is one transition out of it, numbered from 1 in order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd.corpus.lang.topology import Topology
from hadpsgd.errors import UserError
from hadpsgd.gmm import topology as topologies
from hadpsgd.gmm.event_map import PDF_CLASS, Tree, answers
from hadpsgd.kaldi_binary import Reader, Writer

IntArray = NDArray[np.int32]


@dataclass(frozen=True)
class TransitionModel:
    """Tuples and log-probabilities of a model.

    tuples: int32 [transition-states, 4]: phone, HMM state, forward pdf-id, self-loop pdf-id.
    log_probs: float32 [transition-ids + 1]; entry 0 is unused.
    triples: the file has the old form without self-loop pdfs.

    The arrays by transition-id have an unused entry 0, as Kaldi's ids start at 1.
    """

    topology: Topology
    tuples: IntArray
    log_probs: NDArray[np.float32]
    triples: bool = True

    @cached_property
    def first_id(self) -> IntArray:
        """int32 [transition-states + 1]: the first transition-id of each; then one past all."""
        shape = {
            (entry, state): len(value.transitions)
            for entry, states in enumerate(self.topology.entries)
            for state, value in enumerate(states)
        }
        entries = self.topology.index[self.tuples[:, 0]]
        sizes = [
            shape[pair] for pair in zip(entries.tolist(), self.tuples[:, 1].tolist(), strict=True)
        ]
        return np.concatenate([[1], 1 + np.cumsum(sizes)]).astype(np.int32)

    @property
    def num_ids(self) -> int:
        """Number of transition-ids."""
        return int(self.first_id[-1]) - 1

    @cached_property
    def state_of_id(self) -> IntArray:
        """int32 [ids + 1]: index into `tuples` (transition-state minus 1) of a transition-id."""
        sizes = np.diff(self.first_id)
        states = np.repeat(np.arange(len(sizes)), sizes)
        return np.concatenate([[-1], states]).astype(np.int32)

    @cached_property
    def target_of_id(self) -> IntArray:
        """int32 [ids + 1]: HMM state that a transition-id leads to."""
        targets = [-1]
        entries = self.topology.index[self.tuples[:, 0]]
        for entry, state in zip(entries.tolist(), self.tuples[:, 1].tolist(), strict=True):
            targets += [target for target, _ in self.topology.entries[entry][state].transitions]
        return np.array(targets, np.int32)

    @cached_property
    def is_self_loop(self) -> NDArray[np.bool_]:
        """bool [ids + 1]: the transition-id is a self-loop."""
        return self.target_of_id == self.hmm_state

    @cached_property
    def is_final(self) -> NDArray[np.bool_]:
        """bool [ids + 1]: the transition-id ends its phone."""
        last = np.array([len(entry) - 1 for entry in self.topology.entries], np.int32)
        ends = last[self.topology.index[self.phone[1:]]]
        return np.concatenate([[False], self.target_of_id[1:] == ends])

    def _by_id(self, column: IntArray) -> IntArray:
        values = column[self.state_of_id]
        values[0] = -1
        return values

    @cached_property
    def hmm_state(self) -> IntArray:
        """int32 [ids + 1]: HMM state that a transition-id leaves."""
        states = self._by_id(self.tuples[:, 1])
        states[0] = -2
        return states

    @cached_property
    def phone(self) -> IntArray:
        """int32 [ids + 1]: phone of a transition-id."""
        return self._by_id(self.tuples[:, 0])

    @cached_property
    def pdf(self) -> IntArray:
        """int32 [ids + 1]: pdf-id of a transition-id."""
        forward, loop = self._by_id(self.tuples[:, 2]), self._by_id(self.tuples[:, 3])
        return np.where(self.is_self_loop, loop, forward)

    @property
    def num_pdfs(self) -> int:
        """Number of pdf-ids."""
        return int(self.tuples[:, 2:].max()) + 1

    def with_log_probs(self, log_probs: NDArray[np.floating]) -> TransitionModel:
        """The same model with other probabilities."""
        return replace(self, log_probs=np.asarray(log_probs, np.float32))


def make(tree: Tree, topology: Topology) -> TransitionModel:
    """The transition model of a tree, with the probabilities of the topology.

    Raises:
        UserError: the tree has no pdf for a phone of the topology, or a state has two pdf-classes.
    """
    tuples = set()
    for phone in topology.phones.tolist():
        for number, state in enumerate(topology.states(phone)[:-1]):
            if state.forward_pdf_class != state.self_loop_pdf_class:
                raise UserError("topologies with two pdf-classes a state cannot be trained")
            known = {tree.position: phone, PDF_CLASS: state.forward_pdf_class}
            pdfs = answers(tree.root, known)
            if not pdfs:
                raise UserError(f"the tree has no pdf for state {number} of phone {phone}")
            tuples |= {(phone, number, pdf, pdf) for pdf in pdfs}
    rows = sorted(tuples)
    probabilities = [1.0]
    for phone, number, _, _ in rows:
        probabilities += [p for _, p in topology.states(phone)[number].transitions]
    return TransitionModel(
        topology, np.array(rows, np.int32), np.log(np.array(probabilities)).astype(np.float32)
    )


def read_from(reader: Reader) -> TransitionModel:
    """Read the transition model at the start of a model.

    Raises:
        UserError: the content is no transition model, or its parts do not fit one another.
    """
    reader.expect("<TransitionModel>")
    topology = topologies.read_binary(reader)
    form = reader.expect("<Triples>", "<Tuples>")
    width = 3 if form == "<Triples>" else 4
    count = reader.int32()
    tuples = reader.int32_array(count * width).reshape(count, width)
    if width == 3:
        tuples = np.concatenate([tuples, tuples[:, 2:]], axis=1)
    reader.expect("</Triples>", "</Tuples>")
    reader.expect("<LogProbs>")
    log_probs = reader.vector().astype(np.float32)
    reader.expect("</LogProbs>")
    reader.expect("</TransitionModel>")
    model = TransitionModel(topology, tuples, log_probs, width == 3)
    if not np.isin(tuples[:, 0], topology.phones).all():
        raise reader.fail("the transition model has phones that its topology lacks")
    if model.num_ids + 1 != len(log_probs):
        raise reader.fail(f"{len(log_probs)} probabilities for {model.num_ids} transition-ids")
    return model


def write_to(model: TransitionModel, writer: Writer) -> None:
    """Write the transition model as Kaldi does."""
    form = "Triples" if model.triples else "Tuples"
    width = 3 if model.triples else 4
    writer.token("<TransitionModel>")
    topologies.write_binary(model.topology, writer)
    writer.token(f"<{form}>")
    writer.int32(len(model.tuples))
    writer.int32_array(model.tuples[:, :width])
    writer.token(f"</{form}>")
    writer.token("<LogProbs>")
    writer.vector(model.log_probs)
    writer.token("</LogProbs>")
    writer.token("</TransitionModel>")


def read(path: Path) -> TransitionModel:
    """Read the transition model of a `final.mdl` (GMM or nnet3: what follows is not read)."""
    return read_from(Reader.open(path))
