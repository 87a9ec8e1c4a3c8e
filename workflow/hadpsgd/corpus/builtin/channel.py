"""The telephone: band, tilt and ripple of the line, room, noise, level, mu-law (G.711)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy  # its parts are loaded as they are used: signal takes a second

RATE = 8000
_BAND = (300.0, 3400.0)
_TAPS = 257
# dB below full scale of a speaker's active speech (ITU-T recommends about -26)
_SPEECH_DB = -26.0
# share of full scale that samples may reach before coding
_HEADROOM = 0.95


@dataclass(frozen=True, kw_only=True)
class Line:
    """A speaker's end of the line."""

    gain_db: float
    """Level beside the usual one."""
    tilt_db: float
    """Slope of the handset's response, dB an octave around 1 kHz."""
    ripple_db: float
    """Height of its random bumps."""
    snr_db: float
    """Active speech to noise."""
    noise_tilt_db: float
    """Slope of the noise's spectrum, dB an octave."""
    room_seconds: float
    """Reverberation time (60 dB); 0 is none."""


def transmit(
    speech: np.ndarray, active: np.ndarray, line: Line, rng: np.random.Generator
) -> np.ndarray:
    """Send one side of a conversation through its line.

    Args:
        speech: float [samples] at 8 kHz, silent where the speaker does not talk.
        active: bool [samples], true where there is speech; its level sets noise and gain.
        line: the line.
        rng: noise, room and ripple are drawn from it.

    Returns:
        int16 [samples]: what the far end decodes from mu-law.
    """
    response = _response(line, rng)
    if line.room_seconds > 0:
        speech = _convolve(speech, _room(line.room_seconds, rng))
    speech = _centred(speech, response)
    speech *= 10 ** ((_SPEECH_DB + line.gain_db) / 20) / _rms(speech[active])
    noise = rng.standard_normal(len(speech))
    noise = _centred(noise, _slope(line.noise_tilt_db))
    noise *= _rms(speech[active]) * 10 ** (-line.snr_db / 20) / _rms(noise)
    mixed = speech + noise
    mixed *= min(1.0, _HEADROOM / np.abs(mixed).max())
    return mu_law(np.rint(mixed * 32768))


def mu_law(samples: np.ndarray) -> np.ndarray:
    """Code 16-bit samples as G.711 mu-law and decode them: int16, the nearest of 255 levels."""
    return _NEAREST[samples.astype(np.int32) + 32768]


def _mu_law_levels() -> np.ndarray:
    """Decoder outputs of G.711, scaled to 16 bits: 8 segments of 16 steps and their negatives."""
    segment, step = np.divmod(np.arange(128), 16)
    positive = (((step << 3) + 0x84) << segment) - 0x84
    return np.unique(np.concatenate([-positive, positive]))


_LEVELS = _mu_law_levels()
_NEAREST = _LEVELS[
    np.searchsorted((_LEVELS[1:] + _LEVELS[:-1]) / 2, np.arange(-32768, 32768))
].astype(np.int16)
"""Of every 16-bit sample, from the lowest on."""


def _response(line: Line, rng: np.random.Generator) -> np.ndarray:
    """Impulse response of band-pass, tilt and ripple: linear phase."""
    hertz = np.array([0.0, 240, 300, 500, 800, 1200, 1700, 2300, 2900, 3400, 3500, 4000])
    inside = (hertz >= _BAND[0]) & (hertz <= _BAND[1])
    decibels = line.tilt_db * np.log2(np.maximum(hertz, 100) / 1000)
    decibels += line.ripple_db * rng.uniform(-1, 1, len(hertz))
    gain = np.where(inside, 10 ** (decibels / 20), 0.0)
    return scipy.signal.firwin2(_TAPS, hertz, gain, fs=RATE)


def _slope(tilt_db: float) -> np.ndarray:
    """Impulse response of a sloped line: colours white noise, within the band."""
    hertz = np.array([0.0, 240, 300, 600, 1200, 2400, 3400, 3500, 4000])
    inside = (hertz >= _BAND[0]) & (hertz <= _BAND[1])
    gain = 10 ** (tilt_db * np.log2(np.maximum(hertz, 100) / 1000) / 20)
    return scipy.signal.firwin2(_TAPS, hertz, np.where(inside, gain, 0.0), fs=RATE)


def _room(seconds: float, rng: np.random.Generator) -> np.ndarray:
    """Impulse response of a room: the direct sound, then noise that decays by 60 dB."""
    count = int(seconds * RATE)
    tail = rng.standard_normal(count) * 10 ** (-3 * np.arange(count) / count)
    tail *= 0.5 / np.sqrt(np.sum(tail**2))
    tail[0] = 1.0
    return tail


def _convolve(samples: np.ndarray, response: np.ndarray) -> np.ndarray:
    return scipy.signal.oaconvolve(samples, response)[: len(samples)]


def _centred(samples: np.ndarray, response: np.ndarray) -> np.ndarray:
    """Filter without the delay of a linear-phase filter."""
    return scipy.signal.oaconvolve(samples, response, mode="same")


def _rms(samples: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(samples)))) or 1.0
