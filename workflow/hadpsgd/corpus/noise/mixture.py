"""What a noisy copy is mixed from: a line of a data directory's table `mixtures`.

    noise1-ann-1 room=audio/x/room-012.wav noise=audio/x/babble-003.wav start=71 snr=7.4 volume=0.6

The copy is mixed when its utterance is read, so no speech is written twice: the speech is heard in
the room, as loud as before; noise is added from sample `start` of its file on, which begins anew
where it ends; the volume is a factor on the sum. A copy without a room or noise has no such
entries. Files are found as those of wav.scp, from the folder two above the data directory.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import scipy  # its parts are loaded as they are used: signal takes a second
from numpy.typing import NDArray

from hadpsgd.corpus import audio
from hadpsgd.errors import UserError

TABLE = "mixtures"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """How a copy differs from its utterance."""

    room: str = ""
    """File of a room's impulse response; empty is none."""
    noise: str = ""
    """File of noise; empty is none."""
    start: int = 0
    """Its first sample."""
    snr: float = 0.0
    """dB, over the utterance, in the room."""
    volume: float = 1.0
    """Factor on the sum."""

    @classmethod
    def parse(cls, text: str, where: object) -> Mixture:
        """Of a line without its utterance.

        Raises:
            UserError: it is none; says `where`.
        """
        try:
            given = dict(entry.split("=", 1) for entry in text.split())
            kinds = {"room": str, "noise": str, "start": int, "snr": float, "volume": float}
            return cls(**{name: kinds[name](value) for name, value in given.items()})
        except (KeyError, ValueError):
            raise UserError(
                f"bad mixture '{text}'", where=where, fix="Make it anew (`hadpsgd perturb`)"
            ) from None

    def line(self) -> str:
        """What `parse` reads."""
        values = ((field.name, getattr(self, field.name), field.default) for field in fields(self))
        return " ".join(f"{name}={value}" for name, value, usual in values if value != usual)

    def below(self, folder: Path) -> Mixture:
        """The same with relative paths taken from a folder."""
        room, noise = (str(folder / path) if path else "" for path in (self.room, self.noise))
        return replace(self, room=room, noise=noise)

    def applied(self, speech: NDArray[np.floating], rate: int) -> NDArray[np.float32]:
        """The copy of an utterance, [samples] in the range of int16; louder ones are not clipped.

        Raises:
            UserError: a file of it is missing, damaged or at another rate.
        """
        heard = speech.astype(np.float64)
        if self.room:
            heard = in_room(heard, _read(self.room, rate))
        if self.noise:
            noise = _read(self.noise, rate, start=self.start, samples=len(heard))
            heard = with_noise(heard, noise, snr=self.snr)
        return (self.volume * heard).astype(np.float32)


def in_room(speech: NDArray[np.float64], response: NDArray[np.floating]) -> NDArray[np.float64]:
    """Speech through an impulse response that begins with the direct path: as long and as loud,
    whatever the scale of the response."""
    heard = scipy.signal.fftconvolve(speech, response)[: len(speech)]
    power = heard.var()
    return heard * np.sqrt(speech.var() / power) if power > 0 else heard


def with_noise(
    speech: NDArray[np.float64], noise: NDArray[np.floating], *, snr: float
) -> NDArray[np.float64]:
    """Speech and noise, [samples] both, whose variances differ by `snr` dB; silence stays one."""
    centred = noise - noise.mean(dtype=np.float64)
    power = centred.var()
    if not power > 0:
        return speech
    return speech + np.sqrt(speech.var() / power) * 10 ** (-snr / 20) * centred


def _read(
    path: str, rate: int, *, start: int = 0, samples: int | None = None
) -> NDArray[np.float32]:
    """A file, or so many samples from `start` on, round and round; stretches of silence that are
    as long as all of it are passed over."""
    with audio.open_audio(path) as stream:
        if stream.samplerate != rate:
            raise UserError(
                f"sample rate {stream.samplerate} Hz instead of {rate}",
                where=path,
                fix="Make it anew (`hadpsgd perturb`)",
            )
        if samples is None:
            return audio.read(stream, channel=0)
        for first in range(start, start + stream.frames + samples, samples):
            pieces, missing, place = [], samples, first % stream.frames
            while missing:
                end = min(stream.frames, place + missing)
                pieces.append(audio.read(stream, channel=0, start=place, end=end))
                missing, place = missing - (end - place), 0
            found = np.concatenate(pieces)
            if found.var() > 0:
                break
        return found
