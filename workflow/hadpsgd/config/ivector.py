"""i-vectors: the UBM, the extractor and how vectors are estimated."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hadpsgd.config.base import PathText, Section


class Ubm(Section):
    """Diagonal universal background model (Kaldi's steps/online/nnet2/train_diag_ubm.sh)."""

    gaussians: int = Field(128, ge=2)
    """Gaussians; Kaldi takes 512 for hundreds of hours."""
    sample_frames: int = Field(500_000, ge=100)
    """Frames, drawn at random, on which the model is first trained in memory."""
    sample_iterations: int = Field(20, ge=2)
    """Iterations on the sample; Gaussians are split in the first half of them."""
    iterations: int = Field(4, ge=1)
    """Passes over all frames afterwards."""
    min_weight: float = Field(1e-4, ge=0, lt=1)
    """Gaussians below this weight are removed."""


class Ivector(Section):
    """i-vectors (Kaldi's ivector-extractor programs)."""

    dim: int = Field(100, ge=2)
    """Dimension of an i-vector."""
    ubm: Ubm = Ubm()
    context: int = Field(3, ge=0)
    """Frames spliced at either side."""
    transform: PathText | None = None
    """LDA+MLLT transform of spliced features (final.mat); a PCA is estimated without one."""
    input_dim: int = Field(40, ge=2)
    """Dimension after PCA."""
    iterations: int = Field(10, ge=1)
    """Iterations of training the extractor."""
    top: int = Field(10, ge=1)
    """Gaussians kept for a frame."""
    min_post: float = Field(0.025, ge=0, lt=1)
    """Posteriors below this are dropped."""
    posterior_scale: float = Field(0.1, gt=0, le=1)
    """Scale of the posteriors: neighbouring frames are not independent."""
    max_count: float = Field(100.0, ge=0)
    """Scaled frames from which on the prior grows with the data; 0 never."""
    per: Literal["speaker", "utterance", "online"] = "speaker"
    """One vector a speaker, one an utterance, or one every `period` frames that knows only the
    speaker's frames before it (means are still taken off by speaker)."""
    period: int = Field(10, ge=1)
    """Frames between online vectors."""
