"""Frame labels: our own GMM-HMM, or Kaldi's alignments; and the examples cut from them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hadpsgd.config.base import PathText, Section


class Mono(Section):
    """Monophone GMM-HMM from a flat start (Kaldi's steps/train_mono.sh)."""

    kind: Literal["mono"] = "mono"
    gaussians: int = Field(1000, ge=1)
    """Gaussians in total at the end of training."""
    iterations: int = Field(40, ge=2)
    """Iterations of training."""
    beam: float = Field(10.0, gt=0)
    """Viterbi beam; utterances that fail are retried with `retry_beam`."""
    retry_beam: float = Field(40.0, gt=0)
    max_failed: float = Field(0.05, ge=0, le=1)
    """Share of utterances that may fail to align; more stops the run."""


class KaldiAlignment(Section):
    """Import of Kaldi's alignments (`ali.*.gz`, `final.mdl`, `tree`)."""

    kind: Literal["kaldi"]
    ali_dir: PathText
    """Folder with ali.*.gz, final.mdl and tree."""
    lang_dir: PathText
    """The Kaldi lang folder that the alignments were made with."""
    max_failed: float = Field(0.05, ge=0, le=1)
    """Share of utterances that may lack an alignment; more stops the run."""


Alignment = Annotated[Mono | KaldiAlignment, Field(discriminator="kind")]


class Egs(Section):
    """Training examples: subsequences of frames with their pdf-ids."""

    frames: int = Field(21, ge=1)
    """Frames of a subsequence; they do not overlap."""
    shard_frames: int = Field(500_000, ge=1000)
    """Frames of a shard (a pair of files)."""
    dtype: Literal["float32", "float16"] = "float32"
    """How features are stored; float16 halves disk and reading (inputs are normalised)."""
    verify: bool = True
    """Compare the checksums of all shards before training."""
