"""Training, development and test sets where the user has none: apart by speaker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

HELD_OUT = 0.1
"""Share of the speech that dev and test each have, as nearly as whole speakers allow."""
FEWEST_SPEAKERS = 3
SETS = ("train", "dev", "test")


@dataclass(frozen=True)
class Piece:
    """An utterance, as far as the split goes."""

    speaker: str
    seconds: float


def split(pieces: Mapping[str, Piece]) -> tuple[dict[str, str], bool]:
    """Utterance to train, dev or test; and whether no speaker is in two of them.

    The speakers with the least speech are dev's and test's in turn, until each is nearer to
    `HELD_OUT` of all speech than with one more. Train keeps more than half of the speakers, where
    there are five at least. Fewer than `FEWEST_SPEAKERS` speakers are split by utterance. The same
    utterances give the same sets in any order.

    Raises:
        ValueError: fewer than three utterances.
    """
    if len(pieces) < len(SETS):
        raise ValueError(f"{len(pieces)} utterances cannot be train, dev and test")
    speakers: dict[str, float] = {}
    for piece in pieces.values():
        speakers[piece.speaker] = speakers.get(piece.speaker, 0.0) + piece.seconds
    if len(speakers) < FEWEST_SPEAKERS:
        alone = {name: piece.seconds for name, piece in pieces.items()}
        order = sorted(alone, key=lambda name: sha256(name.encode()).digest())
        return _hold_out(order, alone), False
    order = sorted(speakers, key=lambda name: (speakers[name], name))
    sets = _hold_out(order, speakers)
    return {name: sets[piece.speaker] for name, piece in pieces.items()}, True


def _hold_out(order: list[str], seconds: Mapping[str, float]) -> dict[str, str]:
    """From the front of the order, dev and test in turn: one each, then less than half of all."""
    need = HELD_OUT * sum(seconds.values())
    found = dict.fromkeys(order, "train")
    filled = {"dev": 0.0, "test": 0.0}
    most = max(len(filled), (len(order) - 1) // 2)
    for name in order:
        poorer = min(filled, key=lambda held: filled[held])
        lacking = need - filled[poorer]
        if filled[poorer] and lacking <= seconds[name] - lacking:
            continue  # by utterance, shorter ones may follow
        found[name] = poorer
        filled[poorer] += seconds[name]
        most -= 1
        if not most:
            break
    return found
