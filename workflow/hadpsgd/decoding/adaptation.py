"""FMLLR of test speakers, from lattices of what they may have said (Kaldi's decode_fmllr.sh)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hadpsgd import kaldi_io
from hadpsgd.decoding.forward_backward import arc_posteriors, frames_before
from hadpsgd.decoding.gmm import GmmScorer, first_pass_model
from hadpsgd.decoding.lattice import Lattice, Scaling
from hadpsgd.errors import UserError
from hadpsgd.features.fmllr import read_transforms
from hadpsgd.files import atomic_folder
from hadpsgd.gmm import fmllr
from hadpsgd.gmm import model as gmm_model
from hadpsgd.gmm.adaptation import MIN_COUNT, Adaptation, Part, adapt
from hadpsgd.gmm.precisions import PdfPosteriors, frame_terms
from hadpsgd.gmm.transition_model import TransitionModel

QUIET_WEIGHT = 0.01
"""Kaldi's --silence-weight of decode_fmllr.sh."""
_LEAST = 1e-3


@dataclass(frozen=True)
class Supervision:
    """How lattices become posteriors of pdfs.

    quiet: phones that count `quiet_weight`.
    """

    transitions: TransitionModel
    scaling: Scaling
    quiet: tuple[int, ...]
    quiet_weight: float = QUIET_WEIGHT

    def __call__(self, lattice: Lattice) -> PdfPosteriors:
        """Posteriors of every frame (lattice-to-post, weight-silence-post, post-to-pdf-post).

        Raises:
            UserError: the lattice has transition-ids that the model has not.
        """
        counts = lattice.frames
        ids = lattice.transitions(np.arange(len(counts)))
        if len(ids) and ids.max() > self.transitions.num_ids:
            what = f"transition-id {ids.max()}, and the model has {self.transitions.num_ids}"
            raise UserError(what, fix="Decode with this model")
        weights = arc_posteriors(lattice, self.scaling).repeat(counts)
        weights *= np.where(np.isin(self.transitions.phone[ids], self.quiet), self.quiet_weight, 1)
        begin = frames_before(lattice)[lattice.sources] - np.cumsum(counts) + counts
        frames = np.arange(len(ids)) + begin.repeat(counts)
        keys, places = np.unique(
            frames * self.transitions.num_pdfs + self.transitions.pdf[ids], return_inverse=True
        )
        sums = np.bincount(places, weights, len(keys))
        keys, sums = keys[sums > _LEAST], sums[sums > _LEAST]
        found, pdfs = np.divmod(keys, self.transitions.num_pdfs)
        return PdfPosteriors(found, pdfs, sums.astype(np.float32))


def estimate(
    scorer: GmmScorer,
    lattices: Iterable[tuple[str, Lattice]],
    scaling: Scaling,
    quiet: tuple[int, ...],
    min_count: float = MIN_COUNT,
) -> Adaptation:
    """Transforms of all speakers of a data set for the model `final.mdl` of the scorer's folder.

    Without transforms of the scorer Gaussians are chosen by final.alimdl on features that are
    not adapted, where there is one; with them, the new ones are put on top of these.

    Raises:
        UserError: lattices and model do not fit, or something is missing.
    """
    model = gmm_model.read(scorer.folder / "final.mdl")
    first = first_pass_model(scorer.folder).mixtures if scorer.transforms is None else None
    before = {} if scorer.transforms is None else read_transforms(scorer.transforms)
    dim = model.mixtures.dim
    features, inputs = scorer.features(dim), scorer.inputs(dim)
    supervision = Supervision(model.transitions, scaling, quiet)

    def parts() -> Iterator[Part]:
        for utterance, lattice in lattices:
            if not lattice.num_states:
                continue
            if utterance not in inputs.data.utterances:
                raise UserError(f"utterance {utterance} is not there", where=scorer.data,
                                fix="Give the data directory of the lattices")  # fmt: skip
            seen = features[utterance]
            posteriors = supervision(lattice)
            if len(posteriors.frames) and posteriors.frames.max() >= len(seen):
                raise UserError("a lattice longer than the features", where=utterance)
            terms = frame_terms(model.mixtures, seen, posteriors, first)
            speaker = inputs.data.utterances[utterance].speaker
            yield Part(speaker, 1, fmllr.sums_of(seen, terms))

    utterances = Counter(inputs.data.utterances[name].speaker for name in inputs.utterances)
    found = adapt(parts(), utterances, dim=dim, min_count=min_count)
    for speaker, inner in before.items():
        if speaker in found.transforms:
            composed = fmllr.compose(found.transforms[speaker], inner)
            found.transforms[speaker] = composed.astype(np.float32)
    return found


def unadapted(scorer: GmmScorer) -> Adaptation:
    """The identity for all speakers of a data set.

    Raises:
        UserError: something is missing or does not fit.
    """
    dim = gmm_model.read(scorer.folder / "final.mdl").mixtures.dim
    data = scorer.inputs(dim).data
    return adapt((), Counter(utterance.speaker for utterance in data), dim=dim)


def write_transforms(found: Adaptation, out: Path) -> None:
    """Write OUT/trans.1 and OUT/adaptation.json."""
    with atomic_folder(out) as folder:
        kaldi_io.write_archive(folder / "trans.1", sorted(found.transforms.items()))
        report = {
            "speakers": len(found.transforms),
            "frames": found.counts,
            "gain_a_frame": found.gain,
            "too_little_speech": sorted(found.few),
            "singular": sorted(found.singular),
        }
        (folder / "adaptation.json").write_text(json.dumps(report, indent=2) + "\n", "utf-8")
