"""The signal-to-noise ratio of an utterance, from percentiles of the energy of its frames.

    SNR = 10 log10((P95 - P10) / P10) dB

P10, P95: the 10th and 95th percentile of the mean square of frames of 20 ms, every 10 ms, each
less its mean. Speech has pauses, in which noise is alone, so the lowest tenth of the frames tells
the noise; the loudest tell speech with noise on top. So does NIST's `stnr` with a histogram of
frame energies. It is one number for ranking utterances, with two limits: an utterance cut so
tightly that it has no pause seems noisier than it is, and noise that comes and goes counts as
speech.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

LOWEST = -10.0
"""dB; nothing below it is told apart: as much sound at all times."""
_FRAME, _SHIFT = 0.02, 0.01  # seconds
_FEWEST = 10  # frames
_BLOCK = 4096  # frames at a time: an hour of them takes memory
_STEP = 1.0 / 12.0  # mean square of the rounding to 16 bits: what digital silence has at least


def snr(samples: NDArray[np.floating], rate: int) -> float | None:
    """SNR in dB; None where there are fewer than ten frames (0.11 s).

    Args:
        samples: [samples], in the range of int16.
        rate: samples a second.
    """
    size, shift = round(_FRAME * rate), round(_SHIFT * rate)
    if len(samples) < size + (_FEWEST - 1) * shift:
        return None
    frames = np.lib.stride_tricks.sliding_window_view(samples, size)[::shift]
    starts = range(0, len(frames), _BLOCK)
    blocks = [frames[i : i + _BLOCK].var(axis=1, dtype=np.float64) for i in starts]
    noise, loud = np.percentile(np.concatenate(blocks), [10, 95])
    noise = max(float(noise), _STEP)
    ratio = (float(loud) - noise) / noise
    return max(LOWEST, 10.0 * math.log10(ratio)) if ratio > 0 else LOWEST
