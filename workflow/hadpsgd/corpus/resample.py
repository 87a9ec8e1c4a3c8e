"""Change of sample rate with a long linear-phase filter."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import scipy  # its parts are loaded as they are used: signal takes a second

# taps on each side of the centre, in periods of the lower rate; stop band below -100 dB
_HALF_LENGTH = 80
_KAISER_BETA = 10.0
# -6 dB point, as a share of the lower rate's Nyquist frequency; with these three the result
# differs from that of `sox -D -r 8000` by less than one step of 16 bits (rms) on AN4
_CUTOFF = 0.957


@cache
def _filter(up: int, down: int) -> np.ndarray:
    slower = max(up, down)
    taps = 2 * _HALF_LENGTH * slower + 1
    return scipy.signal.firwin(taps, _CUTOFF / slower, window=("kaiser", _KAISER_BETA))


def resample(samples: np.ndarray, *, rate: int, new_rate: int) -> np.ndarray:
    """Float32 [samples] at `rate` Hz to float32 [ceil(samples * new_rate / rate)] at `new_rate`.

    The pass band reaches to 92 % of the lower Nyquist frequency; aliases are below -90 dB.
    """
    if rate == new_rate:
        return samples.astype(np.float32, copy=False)
    divisor = math.gcd(rate, new_rate)
    up, down = new_rate // divisor, rate // divisor
    return scipy.signal.resample_poly(
        samples.astype(np.float64), up, down, window=_filter(up, down)
    ).astype(np.float32)


class Resampler:
    """The same of a recording that comes in blocks: what comes out, put together, is what
    `resample` makes of the whole. Holds a block and what the filter reaches on both sides."""

    def __init__(self, *, rate: int, new_rate: int, channels: int) -> None:
        divisor = math.gcd(rate, new_rate)
        self._up, self._down = new_rate // divisor, rate // divisor
        reach = -(-_HALF_LENGTH * max(self._up, self._down) // self._up) + 1
        self._margin = -(-reach // self._down) * self._down
        self._left = 0  # samples held that are given already; a multiple of down, as the margin
        self._held = np.zeros((0, channels), np.float32)

    def push(self, block: np.ndarray) -> np.ndarray:
        """Take float32 [samples, channels]; give what is certain by now, [new, channels]."""
        if self._up == self._down:
            return block
        self._held = np.concatenate([self._held, block])
        ready = (len(self._held) - self._margin - self._left) // self._down * self._down
        if ready <= 0:
            return self._held[:0]
        until = self._left + ready
        given = self._resampled(self._held[: until + self._margin])[self._given : self._new(until)]
        keep = min(self._margin, until)
        self._held, self._left = self._held[until - keep :], keep
        return given

    def finish(self) -> np.ndarray:
        """What is left, float32 [new, channels]."""
        if self._up == self._down or not len(self._held):
            return self._held[:0]
        return self._resampled(self._held)[self._given :]

    @property
    def _given(self) -> int:
        return self._new(self._left)

    def _new(self, samples: int) -> int:
        return samples // self._down * self._up

    def _resampled(self, samples: np.ndarray) -> np.ndarray:
        window = _filter(self._up, self._down)
        double = samples.astype(np.float64)
        return scipy.signal.resample_poly(double, self._up, self._down, window=window).astype(
            np.float32
        )


def to_int16(samples: np.ndarray) -> np.ndarray:
    """Round to 16-bit integers, clipping at the borders."""
    return np.clip(np.rint(samples), -32768, 32767).astype(np.int16)
