"""What all kinds of corpora share."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from hadpsgd.config.base import Section
from hadpsgd.config.noise import Noise

SetName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
"""It is part of the names of files, and of the commands that make them."""


class AnyCorpus(Section):
    """What all kinds share."""

    speeds: list[Annotated[float, Field(ge=0.5, le=2)]] = Field([1.0])
    """Speeds at which the network is trained on every training utterance, tempo and pitch
    together; [0.9, 1.0, 1.1] triples a small corpus. 1.0, as it was said, must be among them."""

    noise: Noise = Noise()
    """Copies of training utterances with noise, in rooms, and at other volumes; off by default."""

    @property
    def versions(self) -> int:
        """How often each training utterance is trained on: as it was said, and its copies."""
        return len(self.speeds) + self.noise.copies

    @property
    def mixed(self) -> list[Noise]:
        """What decides noisy copies, where there are any."""
        return [self.noise] if self.noise.copies else []

    @property
    def folds_words(self) -> bool:
        """Whether words of transcripts and texts become those of the dictionary."""
        return False

    @property
    def speaks_first(self) -> bool:
        """Whether nobody knows what is said in a set until its speech is made."""
        return False

    @field_validator("speeds")
    @classmethod
    def _own_speed(cls, speeds: list[float]) -> list[float]:
        if 1.0 not in speeds:
            raise ValueError("1.0 must be among the speeds")
        if len(set(speeds)) < len(speeds):
            raise ValueError("a speed is listed twice")
        if any(round(speed, 2) != speed for speed in speeds):
            raise ValueError("two decimals at most")
        return speeds
