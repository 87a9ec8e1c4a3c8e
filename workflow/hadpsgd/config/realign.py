"""Labels of a trained network in place of the GMM's."""

from __future__ import annotations

from pydantic import Field

from hadpsgd.config.base import Section


class Realign(Section):
    """Train a network, align train and dev with it, train the runs on those labels."""

    passes: int = Field(0, ge=0, le=20)
    """How often: each pass trains a network on the labels before it. 0: the labels of `alignment`
    are trained on."""
    run: str = ""
    """Name of the training run whose network aligns; the first one where it is empty."""
    acoustic_scale: float = Field(0.1, gt=0)
    """Factor on the network's log-likelihoods (Kaldi's steps/nnet/align.sh has 0.1)."""
    beam: float = Field(10.0, gt=0)
    """Viterbi beam, in nats; utterances that fail are retried with `retry_beam`."""
    retry_beam: float = Field(40.0, gt=0)
    """Beam, in nats, within which an utterance must align, or it counts as failed
    (alignment.max_failed)."""
