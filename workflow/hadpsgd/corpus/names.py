"""Names of copies of recordings, utterances and speakers; those at other speeds as Kaldi's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_NAME = re.compile(r"(?:sp\d+(?:\.\d+)?|noise\d+)-(.+)")


def perturbed(name: str, speed: float) -> str:
    """What a recording, utterance or speaker is called at another speed."""
    return f"sp{speed:g}-{name}"


def noisy(name: str, number: int) -> str:
    """What its noisy copy of a number, from 1 on, is called."""
    return f"noise{number}-{name}"


def copies(name: str, speeds: Sequence[float], noise: int) -> Iterator[tuple[str, float]]:
    """What copies of an utterance are called, at speeds but 1 and so many with noise; and their
    speeds."""
    yield from ((perturbed(name, speed), speed) for speed in speeds if speed != 1.0)
    yield from ((noisy(name, number), 1.0) for number in range(1, noise + 1))


def original(name: str) -> str:
    """What that is called which it is a copy of."""
    match = _NAME.fullmatch(name)
    return match[1] if match else name
