"""Noisy copies of a data directory: what each is mixed from, and the files of that.

All that is drawn for a copy follows from the seed and the copy's name, and all of a file from the
seed, the file's name and the training speech. So any number of processes makes the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hadpsgd.config.noise import Noise
from hadpsgd.corpus import audio
from hadpsgd.corpus.datadir import AudioReader, DataDir
from hadpsgd.corpus.names import noisy
from hadpsgd.corpus.noise import noises, rooms
from hadpsgd.corpus.noise.mixture import Mixture
from hadpsgd.corpus.resample import to_int16

POOL = 100
"""Rooms, and noises of each kind, that copies are drawn from; those that are drawn are made."""


@dataclass(frozen=True, kw_only=True)
class Mixer:
    """Draws what copies are mixed from, and makes it."""

    settings: Noise
    seed: int
    rate: int
    data: DataDir
    """The training speech."""
    allow_pipes: bool = False

    def mixtures(self, folder: str) -> dict[str, Mixture]:
        """Copy to what it is mixed from: files in `folder`, most of which are yet to be made.

        Raises:
            UserError: there is no noise where `files` says.
        """
        own = len(self._own_files())
        copies = [noisy(name, n) for n in self.settings.numbers for name in self.data.utterances]
        return {copy: self._drawn(copy, folder, own) for copy in copies}

    def _drawn(self, copy: str, folder: str, own: int) -> Mixture:
        """Of one copy; `own` recordings of noise are there."""
        settings, rng = self.settings, self._rng(copy)
        room = int(rng.integers(POOL)) if rng.random() < settings.rooms else None
        mixture = Mixture(
            room="" if room is None else f"{folder}/room-{room:03d}.wav",
            volume=_rounded(_within(rng, settings.volume)),
        )
        if not settings.kinds:
            return mixture
        kind = settings.kinds[rng.integers(len(settings.kinds))]
        number = rng.integers(own if kind == "file" else POOL)
        return replace(
            mixture,
            noise=f"{folder}/{kind}-{number:03d}.wav",
            start=int(rng.integers(int(noises.SECONDS * self.rate))),
            snr=_rounded(_within(rng, settings.snr)),
        )

    def maker(self, folder: Path) -> Callable[[str], None]:
        """The function that makes a file of a name that a mixture has, in `folder`.

        It raises UserError where audio is missing, damaged, or of noise that is silent.
        """
        reader = AudioReader(self.data, self.rate, allow_pipes=self.allow_pipes)
        speech = noises.Speech(reader)
        own = self._own_files()

        def make(name: str) -> None:
            kind, number = name.removesuffix(".wav").split("-")
            rng, path = self._rng(name), folder / name
            match kind:
                case "room":
                    room, t60 = rooms.drawn(rng), _within(rng, self.settings.t60)
                    heard = rooms.response(room, t60=t60, rate=self.rate)
                    sound = heard * (audio.INT16 - 1) / np.abs(heard).max()
                case "shaped":
                    sound = noises.shaped(rng, speech)
                case "babble":
                    sound = noises.babble(rng, speech)
                case _:
                    sound = noises.own(own[int(number)], self.rate)
            audio.write_wav(path, to_int16(sound), self.rate)

        return make

    def _own_files(self) -> list[Path]:
        wanted = self.settings.files if self.settings.copies else None
        return noises.own_files(Path(wanted)) if wanted else []

    def _rng(self, name: str) -> np.random.Generator:
        return np.random.default_rng([self.seed, zlib.crc32(f"noise {name}".encode())])


def parts(mixtures: Mapping[str, Mixture]) -> list[str]:
    """Names of the files that mixtures are made of, sorted."""
    paths = {path for mixture in mixtures.values() for path in (mixture.room, mixture.noise)}
    return sorted(Path(path).name for path in paths if path)


def _within(rng: np.random.Generator, ends: Sequence[float]) -> float:
    """A number between two."""
    low, high = ends
    return rng.uniform(low, high)


def _rounded(value: float) -> float:
    """As it stands in the table."""
    return float(f"{value:.4g}")
