"""Rooms by the image method: impulse responses from a talker to a microphone.

Allen & Berkley, "Image method for efficiently simulating small-room acoustics", JASA 65 (1979),
943-950: mirror images of the talker at the walls of a shoebox, each heard after the time that
sound takes from there, rounded to a sample, with 1 / distance and as many reflections as walls lie
between (their equation 10, all walls alike). Here

- the direct path is sample 0 with the value 1, so that speech stays where its labels are;
- what comes after it goes through a high-pass filter: images have all one sign, real reflections
  not, so that the sum has a rumble that no room has (theirs begins at 80 Hz, too, at 8 kHz);
- the walls' reflection is not that of Sabine's or Eyring's formula, which rectangular rooms do not
  follow: it is searched until the energy decays in the time asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy  # its parts are loaded as they are used: signal takes a second
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SOUND = 343.0
"""Metres a second."""
_LEAST, _GREATEST = np.array([3.0, 3.0, 2.4]), np.array([10.0, 8.0, 4.0])  # metres
_WALL = 0.5  # metres from talker and microphone to any wall, at least
_NEAREST, _FARTHEST = 0.3, 2.0  # metres from talker to microphone
_RUMBLE = 80.0  # Hz
_FROM, _TO = -5.0, -35.0  # dB of the decay to which a line is fitted (ISO 3382's T30)
_HALVINGS = 24


@dataclass(frozen=True)
class Room:
    """A shoebox with one corner in the origin; all in metres, [3]."""

    size: Floats
    talker: Floats
    microphone: Floats


def drawn(rng: np.random.Generator) -> Room:
    """A room at random: 3 to 10 by 3 to 8 by 2.4 to 4 m, talker and microphone 0.3 to 2 m apart."""
    size = rng.uniform(_LEAST, _GREATEST)
    microphone = rng.uniform(_WALL, size - _WALL)
    while True:
        direction = rng.normal(size=3)
        distance = rng.uniform(_NEAREST, _FARTHEST)
        talker = microphone + distance * direction / np.linalg.norm(direction)
        if (talker >= _WALL).all() and (talker <= size - _WALL).all():
            return Room(size, talker, microphone)


def response(room: Room, *, t60: float, rate: int) -> Floats:
    """Impulse response [samples of t60 seconds] of a room whose energy decays by 60 dB in `t60`
    seconds; 0 has no walls: the direct path alone, [1]."""
    images = Images(room, samples=max(1, round(t60 * rate)), rate=rate)
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if reverberation_time(images.response(middle), rate) < t60:
            low = middle
        else:
            high = middle
    return images.response(low)


def reverberation_time(response: Floats, rate: int) -> float:
    """Seconds in which the energy falls by 60 dB, from the line that fits Schroeder's backward
    integral between -5 and -35 dB best; 0 where it falls at once."""
    energy = np.cumsum(response[::-1] ** 2)[::-1]
    level = 10 * np.log10(np.maximum(energy / energy[0], 1e-12))
    (places,) = np.nonzero((level <= _FROM) & (level >= _TO))
    if len(places) < 2:
        return 0.0
    slope = np.polyfit(places / rate, level[places], 1)[0]
    return float(-60.0 / slope) if slope < 0 else 0.0


class Images:
    """Images of a room by the number of their reflections, which is all that walls change."""

    def __init__(self, room: Room, *, samples: int, rate: int) -> None:
        """Count those that are heard within so many samples after the direct path."""
        direct = float(np.linalg.norm(room.talker - room.microphone))
        reach = direct + samples / rate * SOUND
        axes = [_axis(room, axis, reach) for axis in range(3)]
        (x, nx), (y, ny), (z, nz) = axes
        square = y[:, None] ** 2 + z**2
        number = ny[:, None] + nz
        most = sum(int(count.max()) for _, count in axes) + 1
        self._tap = np.zeros((most, samples))  # sum of direct / distance
        for away, count in zip(x, nx, strict=True):
            inside = square <= reach**2 - away**2
            distance = np.sqrt(square[inside] + away**2)
            delay = np.rint((distance - direct) / SOUND * rate).astype(np.int64)
            heard = delay < samples
            place = (number[inside][heard] + count) * samples + delay[heard]
            np.add.at(self._tap.reshape(-1), place, direct / distance[heard])
        self._tap[0] = 0.0  # the direct path, which no filter touches
        self._filter = scipy.signal.butter(2, _RUMBLE, "highpass", fs=rate, output="sos")

    def response(self, reflection: float) -> Floats:
        """Of walls with a reflection from 0 to 1."""
        heard = reflection ** np.arange(len(self._tap)) @ self._tap
        heard = scipy.signal.sosfilt(self._filter, heard)
        heard[0] += 1.0
        return heard


def _axis(room: Room, axis: int, reach: float) -> tuple[Floats, NDArray[np.int64]]:
    """Distances of images from the microphone along an axis, and how often walls across it
    reflected them."""
    most = int(reach / (2 * room.size[axis])) + 1
    rooms = np.arange(-most, most + 1)
    talker, microphone, length = room.talker[axis], room.microphone[axis], room.size[axis]
    straight = talker + 2 * rooms * length - microphone
    mirrored = -talker + 2 * rooms * length - microphone
    counts = np.concatenate([np.abs(2 * rooms), np.abs(rooms - 1) + np.abs(rooms)])
    return np.concatenate([straight, mirrored]), counts
