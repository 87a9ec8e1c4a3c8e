"""Noise: steady with the spectrum of speech, babble of several speakers, or your own recordings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy  # its parts are loaded as they are used: signal takes a second
from numpy.typing import NDArray

from hadpsgd.corpus import audio
from hadpsgd.corpus.datadir import AudioReader
from hadpsgd.corpus.resample import resample
from hadpsgd.errors import UserError

Floats = NDArray[np.float64]

SECONDS = 20.0
"""Of noise that is made here."""
_LEVEL = 1000.0  # rms of it: far from rounding and from clipping
_WINDOW = 512  # samples: spectra of 16 Hz at 8 kHz
_TILT = 6.0  # dB an octave, at most, either way
_PIVOT = 1000.0  # Hz, where a tilt changes nothing
_FEWEST, _MOST = 3, 7  # talkers of a babble
_QUIET = 1.0  # rms of what is silence: the last of 16 bits
_SUFFIXES = frozenset((".wav", ".flac", ".sph", ".ogg"))


@dataclass(frozen=True)
class Speech:
    """Training speech, to be drawn from."""

    reader: AudioReader

    def piece(self, rng: np.random.Generator, utterances: list[str]) -> Floats:
        """`SECONDS` of utterances in an order that is drawn, their rms 1; over and over where they
        are shorter. Silence where they are silent.

        Raises:
            UserError: audio that is missing or damaged.
        """
        wanted, have = int(SECONDS * self.reader.sample_rate), 0
        found: list[NDArray[np.float32]] = []
        for place in rng.permutation(len(utterances)):
            found.append(self.reader.read(self.reader.data.utterances[utterances[place]]))
            have += len(found[-1])
            if have >= wanted:
                break
        return _scaled(np.resize(np.concatenate(found), wanted).astype(np.float64), 1.0)


def shaped(rng: np.random.Generator, speech: Speech) -> NDArray[np.float32]:
    """Gaussian noise with the spectrum of training utterances, tilted by up to 6 dB an octave
    either way, so that no two are alike: from rumble to hiss. [samples], rms 1000."""
    rate = speech.reader.sample_rate
    sound = speech.piece(rng, list(speech.reader.data.utterances))
    where, power = scipy.signal.welch(sound, rate, nperseg=_WINDOW)
    frequencies = np.fft.rfftfreq(len(sound), 1 / rate)
    level = np.sqrt(np.interp(frequencies, where, power))
    octaves = np.log2(np.maximum(frequencies, where[1]) / _PIVOT)
    level *= 10 ** (rng.uniform(-_TILT, _TILT) * octaves / 20)
    level[0] = 0.0
    white = rng.normal(size=(2, len(frequencies)))
    return _level(np.fft.irfft(level * (white[0] + 1j * white[1]), len(sound)))


def babble(rng: np.random.Generator, speech: Speech) -> NDArray[np.float32]:
    """3 to 7 training speakers at once, equally loud; all of them where there are fewer. [samples],
    rms 1000."""
    speakers = speech.reader.data.speakers
    number = min(int(rng.integers(_FEWEST, _MOST, endpoint=True)), len(speakers))
    talkers = [[*speakers][place] for place in rng.permutation(len(speakers))[:number]]
    return _level(np.sum([speech.piece(rng, speakers[talker]) for talker in talkers], axis=0))


def own_files(folder: Path) -> list[Path]:
    """Recordings of noise in a folder and those below, sorted.

    Raises:
        UserError: there is no such folder, or no recording in it.
    """
    if not folder.is_dir():
        raise UserError("no such folder of noise", where=folder, fix="Correct corpus.noise.files")
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES)
    if not found:
        kinds = ", ".join(sorted(_SUFFIXES))
        raise UserError(f"no noise in the folder ({kinds})", where=folder)
    return found


def own(path: Path, rate: int) -> NDArray[np.float32]:
    """A recording of noise, the mean of its channels, at another rate. [samples]

    Raises:
        UserError: it is no audio, damaged, or silent (names it).
    """
    with audio.open_audio(str(path)) as stream:
        channels = [audio.read(stream, channel=number) for number in range(stream.channels)]
        found = resample(np.mean(channels, axis=0), rate=stream.samplerate, new_rate=rate)
    if not len(found) or found.std() < _QUIET:
        raise UserError(
            "a recording of noise in which all is silent",
            where=path,
            fix="Remove it from the folder of corpus.noise.files",
        )
    return found


def _level(noise: Floats) -> NDArray[np.float32]:
    return _scaled(noise, _LEVEL).astype(np.float32)


def _scaled(sound: Floats, rms: float) -> Floats:
    found = sound.std()
    return sound * (rms / found) if found > 0 else sound
