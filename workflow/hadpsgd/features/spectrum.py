"""Power spectra of overlapping windows: Kaldi's feat/feature-window.cc with its default options.

Windows of 25 ms every 10 ms (Povey's window), only where a whole one fits (snip-edges), mean
removed, preemphasis 0.97, padded to a power of two. Written with NumPy over whole utterances:
kaldi-native-fbank takes a waveform sample by sample and a frame by call, which halves its speed.

Windows of digital silence (all samples the same) get noise of one step of 16 bits, as Kaldi's
default, dither of 1, gives it to all. Their log energies would be -16 where one step of noise has
5: a few of them would move a speaker's mean and variance, and all that is normalised by these.
"""

from __future__ import annotations

import zlib

import kaldi_native_fbank as knf
import numpy as np
import scipy.fft
from numpy.typing import NDArray

from hadpsgd.errors import UserError

Matrix = NDArray[np.float32]

PREEMPHASIS = np.float32(0.97)
SHIFT_SECONDS = 0.01
LENGTH_SECONDS = 0.025
# frames worked on together: their windows and spectra stay in the cache
_BLOCK = 256


class Spectrum:
    """Power spectra of utterances at one sample rate."""

    def __init__(self, *, sample_rate: int, dither: float = 0.0, seed: int = 0) -> None:
        """`dither` is the standard deviation of noise added to every sample of a window."""
        self.sample_rate = sample_rate
        self.shift = int(sample_rate * SHIFT_SECONDS)
        self.length = int(sample_rate * LENGTH_SECONDS)
        self.padded = 1 << (self.length - 1).bit_length()
        self._dither = np.float32(dither)
        self._seed = seed
        window = knf.FeatureWindowFunction(self.options()).window
        self._window = np.asarray(window, np.float32)

    def options(self) -> knf.FrameExtractionOptions:
        """The same settings as kaldi-native-fbank's options."""
        options = knf.FrameExtractionOptions()
        options.samp_freq = self.sample_rate
        options.dither = float(self._dither)
        return options

    def num_frames(self, samples: int) -> int:
        """Frames of a waveform of so many samples."""
        return 0 if samples < self.length else 1 + (samples - self.length) // self.shift

    def blocks(self, samples: Matrix, utterance: str = "") -> list[Matrix]:
        """Power spectra, a list of [frames, padded / 2 + 1], of a waveform in int16's range.

        Dither depends on the seed and the utterance's name alone, so any number of processes
        gives the same features.
        """
        count = self.num_frames(len(samples))
        if not count:
            return []
        windows = np.lib.stride_tricks.sliding_window_view(samples, self.length)[:: self.shift]
        # the features' keys have the seed where dither is wanted, not for what silence gets
        seed = self._seed if self._dither else 0
        noise = np.random.default_rng([seed, zlib.crc32(utterance.encode())])
        return [
            self._block(windows[start : start + _BLOCK], noise) for start in range(0, count, _BLOCK)
        ]

    def _block(self, windows: Matrix, noise: np.random.Generator) -> Matrix:
        if self._dither:
            windows = windows + self._dither * noise.standard_normal(windows.shape, np.float32)
        centred = windows - windows.mean(axis=1, keepdims=True)
        if len(silent := _constant(windows)):
            drawn = noise.standard_normal((len(silent), self.length), np.float32)
            centred[silent] = drawn - drawn.mean(axis=1, keepdims=True)
        framed = np.zeros((len(windows), self.padded), np.float32)
        inside = framed[:, : self.length]
        np.multiply(centred[:, :-1], -PREEMPHASIS, out=inside[:, 1:])
        np.multiply(centred[:, 0], -PREEMPHASIS, out=inside[:, 0])
        inside += centred
        inside *= self._window
        spectrum = scipy.fft.rfft(framed)
        return np.square(spectrum.real) + np.square(spectrum.imag)


def _constant(windows: Matrix) -> NDArray[np.intp]:
    """Which of windows [n, length] have the same value throughout."""
    places = np.flatnonzero(windows[:, 0] == windows[:, -1])
    found: NDArray[np.intp] = places[(windows[places] == windows[places, :1]).all(axis=1)]
    return found


def mel_matrix(spectrum: Spectrum, *, bins: int, low_hz: float, high_hz: float) -> Matrix:
    """Triangular mel weights, [padded / 2 + 1, bins] (Kaldi's feat/mel-computations.cc).

    Raises:
        UserError: the edges do not lie between 0 and the Nyquist frequency, or a bin is empty.
    """
    nyquist = spectrum.sample_rate / 2
    top = high_hz if high_hz > 0 else nyquist + high_hz
    if not 0 <= low_hz < top <= nyquist:
        raise UserError(
            f"mel filterbank from {low_hz} to {top} Hz, and the Nyquist frequency is {nyquist} Hz",
            where="features",
        )
    options = knf.MelBanksOptions()
    options.num_bins, options.low_freq, options.high_freq = bins, low_hz, high_hz
    weights = knf.MelBanks(options, spectrum.options()).get_matrix().T
    if not weights.any(axis=0).all():
        raise UserError(f"{bins} mel bins are too many for this sample rate", where="features")
    return np.ascontiguousarray(weights)


def log_mel(spectrum: Spectrum, mel: Matrix, samples: Matrix, utterance: str = "") -> Matrix:
    """Log mel energies, float32 [frames, bins], floored at float32's epsilon as in Kaldi."""
    energies = [block @ mel for block in spectrum.blocks(samples, utterance)]
    if not energies:
        return np.zeros((0, mel.shape[1]), np.float32)
    whole = np.concatenate(energies)
    np.maximum(whole, np.finfo(np.float32).eps, out=whole)
    return np.log(whole, out=whole)
