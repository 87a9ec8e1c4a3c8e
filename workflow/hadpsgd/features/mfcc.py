"""The mfcc stream: mel cepstra (Kaldi's compute-mfcc-feats --use-energy=false)."""

from __future__ import annotations

import numpy as np
import scipy.fft

from hadpsgd.config.features import Features
from hadpsgd.features.spectrum import Matrix, Spectrum, log_mel, mel_matrix

LIFTER = 22.0
LOW_HZ = 20.0


class Mfcc:
    """Computes [frames, cepstra] of an utterance; the first is C0, as in Kaldi's recipes."""

    def __init__(self, config: Features, seed: int = 0) -> None:
        """`seed` is that of the dither."""
        options = config.mfcc
        self._spectrum = Spectrum(sample_rate=config.sample_rate, dither=config.dither, seed=seed)
        self._mel = mel_matrix(self._spectrum, bins=options.bins, low_hz=LOW_HZ, high_hz=0.0)
        self.dim = options.cepstra
        cosines = scipy.fft.dct(np.eye(options.bins), norm="ortho")[:, : self.dim]
        lifter = 1 + 0.5 * LIFTER * np.sin(np.pi * np.arange(self.dim) / LIFTER)
        self._transform = (cosines * lifter).astype(np.float32)

    def __call__(self, samples: Matrix, utterance: str = "") -> Matrix:
        """Cepstra of float32 samples in the range of int16."""
        return log_mel(self._spectrum, self._mel, samples, utterance) @ self._transform
