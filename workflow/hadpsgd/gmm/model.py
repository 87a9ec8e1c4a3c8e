"""`final.mdl` of a GMM-HMM: transition model and mixtures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hadpsgd.gmm import diag_gmm, transition_model
from hadpsgd.gmm.diag_gmm import Mixtures
from hadpsgd.gmm.transition_model import TransitionModel
from hadpsgd.kaldi_binary import HEADER, Reader, Writer


@dataclass(frozen=True)
class Model:
    """A GMM-HMM."""

    transitions: TransitionModel
    mixtures: Mixtures


def read(path: Path) -> Model:
    """Read a GMM's `final.mdl`.

    Raises:
        UserError: it is missing, cut short, no GMM, or has other pdfs than its transition model.
    """
    return _read(Reader.open(path))


def parse(stored: bytes) -> Model:
    """Inverse of `content`."""
    reader = Reader(stored, "model")
    reader.position = len(HEADER)
    return _read(reader)


def _read(reader: Reader) -> Model:
    transitions = transition_model.read_from(reader)
    mixtures = diag_gmm.read_from(reader)
    reader.finish()
    if mixtures.num_pdfs != transitions.num_pdfs:
        raise reader.fail(
            f"{mixtures.num_pdfs} mixtures for {transitions.num_pdfs} pdfs of the transition model"
        )
    return Model(transitions, mixtures)


def content(model: Model) -> bytes:
    """The bytes of `final.mdl`, as Kaldi writes it."""
    writer = Writer()
    transition_model.write_to(model.transitions, writer)
    diag_gmm.write_to(model.mixtures, writer)
    return writer.content()
