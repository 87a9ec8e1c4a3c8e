"""Log-likelihoods of a GMM-HMM, features made as its folder says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd.config import Config
from hadpsgd.config.alignment import Ladder
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.decoding.decode import Scorer
from hadpsgd.decoding.scores import Scores, scores_of
from hadpsgd.errors import UserError
from hadpsgd.features.fmllr import Adapted, read_transforms
from hadpsgd.features.frontend import Frontend, Inputs
from hadpsgd.gmm import model as gmm_model
from hadpsgd.gmm.likelihood import log_likelihoods
from hadpsgd.gmm.model import Model
from hadpsgd.gmm.pipeline import deltas

Matrix = NDArray[np.float32]


def frontend_of(folder: Path, dim: int) -> Frontend:
    """How a model's folder says that features are made: final.mat on spliced frames, or deltas.

    dim: of the model.

    Raises:
        UserError: files of the folder are missing or broken.
    """
    if (folder / "final.mat").is_file():
        return Frontend.read(folder)
    pipeline = deltas(dim=dim // 3)
    reach = pipeline.context
    return replace(Frontend.unspliced(folder), left=reach, right=reach, transform=pipeline.matrix)


def first_pass_model(folder: Path) -> Model:
    """The model for features that are not adapted yet: final.alimdl, where there is one."""
    aligner = folder / "final.alimdl"
    return gmm_model.read(aligner if aligner.is_file() else folder / "final.mdl")


def gmm_scale(config: Config) -> float:
    """Acoustic scale of decoding with GMMs."""
    if isinstance(config.alignment, Ladder):
        return config.alignment.acoustic_scale
    return config.decoding.acoustic_scale


@dataclass(frozen=True, kw_only=True)
class GmmScorer:
    """Makes a scorer of utterances.

    folder: final.mdl and what belongs to it, ours or Kaldi's. data: Kaldi data directory. feats:
    folder of its MFCC and CMVN. transforms: folder of FMLLR transforms by speaker; without them
    final.alimdl scores features as they are, where there is one.
    """

    folder: Path
    data: Path
    feats: Path
    transforms: Path | None = None
    max_skipped: float = 0.01

    def __call__(self) -> Scorer:
        """Load model and transforms in the process that uses them.

        Raises:
            UserError: something is missing, broken or does not fit.
        """
        adapts = self.transforms is not None
        model = gmm_model.read(self.folder / "final.mdl") if adapts else (
            first_pass_model(self.folder)
        )  # fmt: skip
        mixtures = model.mixtures
        source = self.features(mixtures.dim)

        def score(utterance: str) -> Scores:
            features = source[utterance]
            if features.shape[1] != mixtures.dim:
                what = f"{features.shape[1]} features a frame, the model takes {mixtures.dim}"
                raise UserError(what, where=self.folder / "final.mdl")

            def make(begin: int, end: int) -> Matrix:
                return log_likelihoods(mixtures, features[begin:end])

            pdfs = len(mixtures.offsets) - 1
            return scores_of(frames=len(features), pdfs=pdfs, make=make, held=features.nbytes)

        return score

    def utterances(self) -> list[str]:
        """Utterances that have features."""
        data = DataDir.read(self.data, audio=False, text=False)
        return Inputs(data, self.feats, Frontend(left=0, right=0), self.max_skipped).utterances

    def inputs(self, dim: int) -> Inputs:
        """Features of the data set for a model of `dim` dimensions, not adapted."""
        data = DataDir.read(self.data, audio=False, text=False)
        return Inputs(data, self.feats, frontend_of(self.folder, dim), self.max_skipped)

    def features(self, dim: int) -> Inputs | Adapted:
        """Features of the data set as the model takes them."""
        inputs = self.inputs(dim)
        if self.transforms is None:
            return inputs
        transforms: Mapping[str, Matrix] = read_transforms(self.transforms)
        return Adapted(inputs, transforms)
