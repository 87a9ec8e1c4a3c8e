"""Acoustic features and their fusion into the model's input."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from hadpsgd.config.base import DECIDES_NOTHING, Section
from hadpsgd.config.imports import Imports
from hadpsgd.config.ivector import Ivector
from hadpsgd.config.limits import Limits


class Logmel(Section):
    """Log mel filterbank energies (Kaldi's compute-fbank-feats) with deltas."""

    bins: int = Field(40, ge=8, le=128)
    """Mel bins."""
    low_hz: float = Field(20.0, ge=0)
    """Lower edge of the filterbank, in Hz."""
    high_hz: float = 0.0
    """Upper edge, in Hz; zero or less is counted from the Nyquist frequency."""
    delta_order: int = Field(2, ge=0, le=3)
    """Orders of deltas appended (2: delta and delta-delta)."""
    delta_window: int = Field(2, ge=1, le=100)
    """Half-width of the regression window of the deltas, in frames."""


class Mfcc(Section):
    """MFCC (Kaldi's compute-mfcc-feats), the input of the GMMs."""

    cepstra: int = Field(13, ge=5, le=128)
    """Cepstral coefficients."""
    bins: int = Field(23, ge=8, le=128)
    """Mel bins."""


class Features(Section):
    """Features and the list that is fused into the model's input."""

    sample_rate: int = Field(8000, ge=8000, le=384_000)
    """Hz. Audio at another rate is refused (the an4 corpus is resampled when it is prepared)."""
    dither: float = Field(0.0, ge=0, le=32_768)
    """Standard deviation of noise added to every sample (of 16 bits); 0 adds none, but 1 where all
    samples of a window are the same (digital silence)."""
    logmel: Logmel = Logmel()
    mfcc: Mfcc = Mfcc()
    ivector: Ivector = Ivector()
    normalise: Literal["speaker-mean", "speaker-mean-variance", "none"] = "speaker-mean"
    """Normalisation of logmel, by speaker."""
    ivector_scale: float = Field(1.0, gt=0)
    """Factor on i-vectors in the network's input. Networks learn small inputs slowly: below 1 they
    rely less on i-vectors of the few speakers of a small corpus."""
    input: list[Literal["fmllr", "ivector", "logmel"]] = Field(["logmel"], min_length=1)
    """Streams fused, in order, into the model's input."""
    imports: Imports = Imports()
    """Streams that come from Kaldi's archives instead."""
    allow_pipes: bool = Field(False, json_schema_extra=DECIDES_NOTHING)
    """Run commands found in imported scp files (`copy-feats ... |`). Only for data you trust."""
    max_skipped: Limits = Field(Limits({"default": 0.01}), json_schema_extra=DECIDES_NOTHING)
    """Share of utterances that may be too short for features; more stops the run. By set too:
    {default: 0.01, train: 0.05}."""

    @model_validator(mode="after")
    def _input_makes_sense(self) -> Features:
        if len(set(self.input)) < len(self.input):
            raise ValueError("input: a stream is listed twice")
        if set(self.input) == {"ivector"}:
            raise ValueError("input: i-vectors need logmel or fmllr beside them, for the frames")
        return self
