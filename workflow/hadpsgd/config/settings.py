"""The acoustic model and how a run trains it: what every run may have otherwise."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hadpsgd.config.base import DECIDES_IF_GIVEN, DECIDES_NOTHING, Section
from hadpsgd.config.spec_augment import SpecAugment


class Model(Section):
    """Bidirectional LSTM, linear projection, softmax over tied HMM states."""

    layers: int = Field(6, ge=1, le=100)
    """Bidirectional LSTM layers."""
    cells: int = Field(512, ge=1, le=2**20)
    """LSTM cells per direction."""
    projection: int = Field(256, ge=1, le=2**20)
    """Units of the linear projection before the softmax."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout between layers."""
    input_dropout: float = Field(0.0, ge=0, lt=1, json_schema_extra=DECIDES_IF_GIVEN)
    """Share of the input's values left out of an example, the same in all its frames."""
    output_dropout: float = Field(0.0, ge=0, lt=1, json_schema_extra=DECIDES_IF_GIVEN)
    """Share of the last layer's outputs left out of an example, the same in all its frames."""
    frames_per_step: int = Field(1, ge=1, le=10, json_schema_extra=DECIDES_IF_GIVEN)
    """Frames that a step of the LSTM reads and labels: with 3 it makes a third of the steps in half
    the time (docs/sequence-training.md#three-frames-a-step)."""


class LearningRate(Section):
    """The papers' rule: linear scaling, warm-up, annealing by 1/sqrt(2) an epoch."""

    base: float = Field(0.1, gt=0, le=1e6)
    """Learning rate at `base_batch`."""
    base_batch: int = Field(256, ge=1)
    """Batch (subsequences) at which `base` holds; larger batches scale it linearly."""
    warmup_epochs: float = Field(0.0, ge=0)
    """Epochs of linear warm-up from `base` to the scaled rate."""
    anneal_after: float = Field(10.0, ge=0)
    """Epochs before the rate is multiplied by `anneal_factor` every epoch."""
    anneal_factor: float = Field(2**-0.5, gt=0, le=1)
    """Factor on the rate at each epoch after `anneal_after`; 1 keeps it."""


class Settings(Section):
    """How a run is trained; batches count subsequences over all learners."""

    seed: int | None = Field(None, ge=0)
    """Seed of the first weights, the order of examples, dropout and random schedules; the config's
    `seed`, which makes the data, where it is not given."""
    epochs: int = Field(16, ge=1)
    """Passes over the training examples, all learners together."""
    batch: int = Field(256, ge=1)
    """Total batch, in subsequences, over all learners."""
    learning_rate: LearningRate = LearningRate()
    momentum: float = Field(0.9, ge=0, lt=1)
    """Momentum of SGD. The papers do not state theirs; 0.9 is ours."""
    nesterov: bool = False
    """Nesterov's form of the momentum."""
    weight_decay: float = Field(0.0, ge=0, le=1e6)
    """Factor on the weights that is added to the gradient (an L2 penalty)."""
    clip_norm: float = Field(0.0, ge=0)
    """Clip the gradient to this norm; 0 does not."""
    spec_augment: SpecAugment = Field(SpecAugment(), json_schema_extra=DECIDES_IF_GIVEN)
    ivector_dropout: float = Field(0.0, ge=0, lt=1, json_schema_extra=DECIDES_IF_GIVEN)
    """Share of the training examples whose i-vector is replaced by zeros, drawn anew each epoch."""
    average_last: int = Field(1, ge=1, json_schema_extra=DECIDES_IF_GIVEN)
    """The final model is the mean of the weights at the ends of so many last epochs, if its loss on
    held-out data is not worse than that of the last one's (docs/small-data.md); 1 takes the last
    one's."""
    early_stop: int = Field(0, ge=0, json_schema_extra=DECIDES_IF_GIVEN)
    """Training ends when the loss on held-out data has not become better for so many epochs, and
    the weights of the best epoch are the final ones, or the mean of the `average_last` epochs up to
    it; 0 trains all epochs and takes the last."""
    precision: Literal["fp32", "tf32", "bf16", "fp64"] = "fp32"
    """Of the model's arithmetic; weights are kept in fp32 (fp64: all in double precision).
    bf16 takes the fastest of three ways, fp32 among them; a run keeps what its
    first start measured."""
    not_finite: Literal["stop", "skip"] = "stop"
    """A gradient that is NaN or infinite stops the run, or is left out (and counted)."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto takes a GPU where there is one. CPU and GPU give other bits: results record which."""
    threads: int = Field(0, ge=0, le=4096)
    """Threads of a learner, which decide bits; 0 takes cores / learners of the host, at least 1."""
    readers: int = Field(1, ge=1, le=64, json_schema_extra=DECIDES_NOTHING)
    """Threads of a learner that read its examples; one gives several 100,000 frames a second."""
    read_together: int = Field(16, ge=1)
    """Examples side by side on disk that are read at once and stay in one minibatch (1: none do).
    They were put there at random. Fewer than 1,000 such runs are shuffled one by one."""
    checkpoint_minutes: float = Field(5.0, gt=0, json_schema_extra=DECIDES_NOTHING)
    """Minutes between checkpoints; a kill loses at most the work since the last."""
    keep_checkpoints: int = Field(2, ge=1, json_schema_extra=DECIDES_NOTHING)
    """Checkpoints kept; a damaged newest one is passed over for the one before."""
    lost_learner: Literal["continue", "replace", "stop"] = Field(
        "replace", json_schema_extra=DECIDES_NOTHING
    )
    """When a learner fails: a new process joins the others, which go on (replace); the others go
    on without it (continue); or the job fails, to be tried again (stop). A super-learner leaves and
    joins as a whole. Where the strategy cannot go on without one (all but adpsgd, rand and hadpsgd
    among adpsgd), replace and continue start all learners again from the last checkpoint; where
    learners draw partners (random-partner), replace is continue. A host that fails takes its
    learners with it: with replace and continue the other hosts go on (adpsgd, rand)."""
    member_death: Literal["leave", "wait", "continue"] = Field(
        "leave", json_schema_extra=DECIDES_NOTHING
    )
    """When a member of a super-learner fails: the super-learner leaves as a whole, as
    `lost_learner` says (leave); or its first member takes part in mixing, and all wait until new
    processes have its weights and momentum (wait); or until then those that are left share out the
    minibatches of all members, which takes as much longer (continue). If the first member fails,
    another one takes its place, from a neighbour's weights. One that waits for longer than
    `site.rendezvous_seconds` leaves with its super-learner. For hadpsgd among adpsgd on processors,
    with wire float32."""
    silence_limit: float = Field(30.0, ge=0, json_schema_extra=DECIDES_NOTHING)
    """Seconds without a sign of life after which `hadpsgd launch` ends the process of a learner
    (stopped, or hanging); `lost_learner` says what then. For a gradient that does not end, 10 times
    as many, and 10 times the longest gradient before. 0 waits for ever."""
