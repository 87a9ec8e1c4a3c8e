"""Log-likelihoods of a GMM-HMM, features made as Kaldi's recipes do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd import kaldi_io
from hadpsgd.decoding.decode import Scorer
from hadpsgd.errors import UserError
from hadpsgd.features import cmvn
from hadpsgd.features.deltas import add_deltas
from hadpsgd.features.splice import splice
from hadpsgd.gmm import model as gmm_model
from hadpsgd.gmm.likelihood import log_likelihoods

Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class GmmScorer:
    """Makes a scorer of utterances.

    feats: scp of features. cmvn_scp: per-speaker statistics to normalise by. lda: final.mat for
    frames spliced by `context`; without it deltas are added where `deltas` says so. transforms:
    archives of fMLLR transforms by speaker or utterance.
    """

    model: Path
    feats: Path
    speakers: dict[str, str]
    cmvn_scp: Path | None = None
    lda: Path | None = None
    context: int = 3
    deltas: bool = False
    transforms: tuple[Path, ...] = ()

    def __call__(self) -> Scorer:
        """Load model and transforms in the process that uses them."""
        mixtures = gmm_model.read(self.model).mixtures
        feats = kaldi_io.Scp(self.feats)
        stats = kaldi_io.Scp(self.cmvn_scp) if self.cmvn_scp else None
        lda = kaldi_io.read(self.lda) if self.lda else None
        transforms = {
            key: matrix for path in self.transforms for key, matrix in kaldi_io.iterate(path)
        }

        def score(utterance: str) -> Matrix:
            features = feats[utterance]
            speaker = self.speakers[utterance]
            if stats is not None:
                features = cmvn.apply(features, stats[speaker])
            if lda is not None:
                features = transform(splice(features, self.context, self.context), lda)
            elif self.deltas:
                features = add_deltas(features)
            if transforms:
                key = utterance if utterance in transforms else speaker
                if key not in transforms:
                    raise UserError(f"no transform for speaker {speaker}", where=self.transforms[0])
                features = transform(features, transforms[key])
            if features.shape[1] != mixtures.dim:
                what = f"{features.shape[1]} features a frame, the model takes {mixtures.dim}"
                raise UserError(what, where=self.model)
            return log_likelihoods(mixtures, features)

        return score

    def utterances(self) -> list[str]:
        """Utterances with features."""
        return [name for name in kaldi_io.Scp(self.feats) if name in self.speakers]


def transform(features: Matrix, matrix: NDArray[np.floating]) -> Matrix:
    """A linear or affine transform of features (Kaldi's transform-feats)."""
    dim = features.shape[1]
    if matrix.shape[1] not in (dim, dim + 1):
        raise UserError(f"a transform of shape {matrix.shape} for {dim} features a frame")
    result = features @ matrix[:, :dim].T
    if matrix.shape[1] == dim + 1:
        result += matrix[:, dim]
    return result.astype(np.float32)
