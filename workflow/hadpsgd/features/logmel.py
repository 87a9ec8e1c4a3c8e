"""The logmel stream: log mel filterbank energies (Kaldi's compute-fbank-feats, no energy)."""

from __future__ import annotations

from hadpsgd.config.features import Features
from hadpsgd.features.spectrum import Matrix, Spectrum, log_mel, mel_matrix


class Logmel:
    """Computes [frames, bins] of an utterance."""

    def __init__(self, config: Features, seed: int = 0) -> None:
        """`seed` is that of the dither."""
        options = config.logmel
        self._spectrum = Spectrum(sample_rate=config.sample_rate, dither=config.dither, seed=seed)
        self._mel = mel_matrix(
            self._spectrum, bins=options.bins, low_hz=options.low_hz, high_hz=options.high_hz
        )
        self.dim = options.bins

    def __call__(self, samples: Matrix, utterance: str = "") -> Matrix:
        """Log mel energies of float32 samples in the range of int16."""
        return log_mel(self._spectrum, self._mel, samples, utterance)
