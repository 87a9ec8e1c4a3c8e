"""Names of copies of recordings, utterances and speakers, as Kaldi gives them."""

from __future__ import annotations

import re

_NAME = re.compile(r"sp\d+(?:\.\d+)?-(.+)")


def perturbed(name: str, speed: float) -> str:
    """What a recording, utterance or speaker is called at another speed."""
    return f"sp{speed:g}-{name}"


def original(name: str) -> str:
    """What it is called at its own speed."""
    match = _NAME.fullmatch(name)
    return match[1] if match else name
