"""Noisy copies of the training speech."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from hadpsgd.config.base import PathText, Section


def _ordered(ends: list[float]) -> list[float]:
    if ends[0] > ends[1]:
        raise ValueError("the lower end comes first")
    return ends


_TWO = (Field(min_length=2, max_length=2), AfterValidator(_ordered))
Decibels = Annotated[list[Annotated[float, Field(ge=-20, le=60)]], *_TWO]
"""Lower and upper end, in dB."""
Seconds = Annotated[list[Annotated[float, Field(ge=0.1, le=1)]], *_TWO]
"""Shortest and longest time."""
Factors = Annotated[list[Annotated[float, Field(gt=0, le=16)]], *_TWO]
"""Least and greatest factor."""


class Noise(Section):
    """Copies of every training utterance with noise, in rooms, and at other volumes."""

    copies: int = Field(0, ge=0, le=10)
    """Noisy copies of every training utterance on which the network is trained too; 0 makes
    none."""
    sources: list[Literal["shaped", "babble"]] = Field(["shaped", "babble"])
    """Kinds of noise that are made here, each as often as the others: `shaped` is steady, with the
    spectrum of training speech, tilted at random; `babble` is 3 to 7 training speakers at once."""
    files: PathText | None = None
    """Folder of your own noise (WAV, FLAC, Sphere, Ogg; any rate, also in folders below), drawn as
    often as each of `sources`. For this noise alone, set `sources: []`."""
    snr: Decibels = Field([5.0, 20.0])
    """Signal-to-noise ratios in dB, from least to greatest, over the whole utterance with its
    pauses."""
    rooms: float = Field(0.5, ge=0, le=1)
    """Share of the copies that are heard in a room: the speech reverberates, the noise does not."""
    t60: Seconds = Field([0.2, 0.8])
    """Reverberation times of rooms in seconds, from shortest to longest."""
    volume: Factors = Field([0.125, 2.0])
    """Factors on the samples, from least to greatest; [1, 1] leaves the volume as it is."""

    @model_validator(mode="after")
    def _differ(self) -> Noise:
        if len(set(self.sources)) < len(self.sources):
            raise ValueError("a source is listed twice")
        something = self.sources or self.files or self.rooms or self.volume != [1.0, 1.0]
        if self.copies and not something:
            raise ValueError("such copies are no others: give sources, files, rooms or volume")
        return self

    @property
    def numbers(self) -> range:
        """Of the copies, by which they are called."""
        return range(1, self.copies + 1)

    @property
    def kinds(self) -> list[str]:
        """What noise is drawn from."""
        return [*self.sources, *(["file"] if self.files else [])]
