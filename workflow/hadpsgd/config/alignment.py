"""Frame labels: our own GMM-HMM, or Kaldi's alignments; and the examples cut from them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hadpsgd.config.base import DECIDES_IF_GIVEN, DECIDES_NOTHING, PathText, Section
from hadpsgd.config.imports import Paths
from hadpsgd.config.limits import Limits


class MonoStage(Section):
    """Size of the monophone model."""

    gaussians: int = Field(1000, ge=1)
    """Gaussians in total at the end of training."""
    iterations: int = Field(40, ge=2)
    """Models of training, the first one included (Kaldi's num_iters)."""
    shortest: int = Field(0, ge=0, json_schema_extra=DECIDES_IF_GIVEN)
    """Train on so many of the shortest utterances alone (0: on any); all are aligned in the end."""
    utterances: int = Field(0, ge=0, json_schema_extra=DECIDES_IF_GIVEN)
    """Train on so many of these, evenly spaced in the order of the data (0: on all of them).
    egs/swbd/s5c takes 30,000 of the 100,000 shortest."""
    variance_prior: float = Field(40.0, ge=0)
    """Frames that the mean variance of a pdf's Gaussians weighs in the variance of each; Kaldi has
    none (0)."""


class OwnAlignment(Section):
    """What all our own stages share."""

    beam: float = Field(10.0, gt=0)
    """Viterbi beam, in nats; utterances that fail are retried with `retry_beam`."""
    retry_beam: float = Field(40.0, gt=0)
    """Beam, in nats, within which an utterance must align, or it counts as failed."""
    boost_silence: float = Field(1.25, gt=0)
    """Factor on the likelihood of silence while aligning (Kaldi's --boost-silence)."""
    max_failed: Limits = Field(Limits({"default": 0.05}), json_schema_extra=DECIDES_NOTHING)
    """Share of utterances that may fail to align; more stops the run. By set: {default: 0.05,
    dev: 0.2}."""


class Mono(OwnAlignment, MonoStage):
    """Monophone GMM-HMM from a flat start (Kaldi's steps/train_mono.sh)."""

    kind: Literal["mono"] = "mono"
    """Monophones."""

    @property
    def mono_stage(self) -> MonoStage:
        """Size of the monophone model."""
        return self

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that are trained, in order."""
        return ("mono",)


class TreeStage(Section):
    """Size of a triphone model."""

    leaves: int = Field(2000, ge=1)
    """Leaves of the decision tree at most (pdf-ids, the targets of the network)."""
    gaussians: int = Field(10000, ge=1)
    """Gaussians in total at the end of training."""
    iterations: int = Field(35, ge=2)
    """Models of training, the first one included (Kaldi's num_iters)."""
    variance_prior: float = Field(40.0, ge=0)
    """Frames of the prior, as `variance_prior` of monophones."""


class TriStage(TreeStage):
    """Triphones on deltas."""

    utterances: int = Field(0, ge=0, json_schema_extra=DECIDES_IF_GIVEN)
    """Train on so many utterances, evenly spaced in the order of the data (0: on all); all are
    aligned in the end. egs/swbd/s5c takes 100,000."""


class LdaStage(TreeStage):
    """Triphones on LDA+MLLT features."""

    context: int = Field(3, ge=0, le=10)
    """Frames spliced on each side."""
    dim: int = Field(40, ge=2)
    """Dimension after LDA."""


class SatStage(TreeStage):
    """Triphones on features adapted to the speaker."""

    variance_prior: float = Field(0.0, ge=0)
    """Frames of the prior, as `variance_prior` of monophones."""


class Ladder(OwnAlignment):
    """Monophones, triphones on deltas, LDA+MLLT, speaker-adaptive training with FMLLR.

    Each stage is trained on the alignments of the one before; `kind` says which is the last.
    """

    kind: Literal["tri", "lda_mllt", "sat"]
    """The last stage that is trained."""
    mono: MonoStage = MonoStage()
    tri: TriStage = TriStage()
    lda_mllt: LdaStage = LdaStage()
    sat: SatStage = SatStage()
    min_speaker_frames: int = Field(500, ge=1)
    """Frames of speech below which a speaker gets no FMLLR transform of its own (Kaldi's
    --fmllr-min-count)."""
    acoustic_scale: float = Field(0.0833, gt=0)
    """Acoustic scale of decoding with these models (of the passes that adapt test speakers)."""

    @property
    def mono_stage(self) -> MonoStage:
        """Size of the monophone model."""
        return self.mono

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that are trained, in order."""
        order = ("mono", "tri", "lda_mllt", "sat")
        return order[: order.index(self.kind) + 1]


class KaldiAlignment(Section):
    """Import of Kaldi's alignments (`ali.*.gz`, `final.mdl`, `tree`)."""

    kind: Literal["kaldi"]
    """Kaldi's alignments."""
    ali_dir: Paths
    """Folder with ali.*.gz, final.mdl and tree; or several of one model. `{set}` in a path stands
    for train and dev."""
    align_dev: bool = False
    """Align the development set here with that model (final.mdl, and final.alimdl for FMLLR),
    where Kaldi has aligned the training speech alone."""
    lang_dir: PathText
    """The Kaldi lang folder that the alignments were made with."""
    max_failed: Limits = Field(Limits({"default": 0.05}), json_schema_extra=DECIDES_NOTHING)
    """Share of utterances that may lack an alignment; more stops the run. By set too."""

    @property
    def stages(self) -> tuple[str, ...]:
        """No stages of ours."""
        return ()

    def folders(self, name: str) -> list[str]:
        """The folders that have alignments of a set."""
        return [path.replace("{set}", name) for path in self.ali_dir]


Alignment = Annotated[Mono | Ladder | KaldiAlignment, Field(discriminator="kind")]


class Egs(Section):
    """Training examples: subsequences of frames with their pdf-ids."""

    frames: int = Field(21, ge=1, le=100_000)
    """Frames of a subsequence."""
    shift: int = Field(0, ge=0)
    """Frames from the start of a training subsequence to that of the next; 0 is `frames`, so that
    they do not overlap. Overlapping ones show the network more on small corpora."""
    tempos: list[Annotated[float, Field(ge=0.5, le=2)]] = Field([1.0], min_length=1)
    """Tempos at which every training utterance is used (0.9 is slower): features are stretched in
    time, without audio. [0.9, 1.0, 1.1] triples a small corpus; see also corpus.speeds."""
    misfit: float = Field(0.0, ge=0, json_schema_extra=DECIDES_IF_GIVEN)
    """Training utterances whose aligned states have a log-posterior a frame below the median of all
    by more than so many standard deviations are left out and named: their transcripts may not be
    what is said. 4 are the outliers of the alignment's report; 0 leaves out none. Not for Kaldi's
    alignments, which do not say how utterances fit."""
    shard_frames: int = Field(500_000, ge=1000)
    """Frames of a shard, a file that one process makes; it holds two in memory."""
    dtype: Literal["float32", "float16", "int8"] = "float32"
    """How features are stored. float16 halves the disk, with a relative error of 2^-11 at most;
    int8 quarters it: 254 steps over each feature's range in a shard, an error of half a step at
    most. Errors are measured when examples are made, and said."""
    verify: bool = Field(True, json_schema_extra=DECIDES_NOTHING)
    """Compare the checksums of all shards when a training starts; its learners share the work."""
