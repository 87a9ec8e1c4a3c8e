"""Spontaneous speech: fillers, repeated words and restarts put into fluent sentences."""

from __future__ import annotations

from dataclasses import dataclass

from hadpsgd.corpus.builtin.grammar import PUNCTUATION, Draw, Grammar

# what people restart with something else in its place
_PRONOUNS = ("i", "we", "they", "he", "she", "you", "it")


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How often a word is preceded by a disfluency (probabilities)."""

    filler: float
    repeat: float
    restart: float


def speak_freely(
    tokens: list[str], manner: Manner, grammar: Grammar, topic: str, draw: Draw
) -> list[str]:
    """Insert disfluencies; punctuation is kept and added where the voice should break."""
    spoken: list[str] = []
    clause: list[str] = []  # words since the last punctuation
    for token in tokens:
        if token in PUNCTUATION:
            clause = []
            spoken.append(token)
            continue
        if clause and draw() < manner.restart:
            spoken += [",", *_restart(clause, draw)]
        if draw() < manner.filler:
            spoken += [",", *grammar.expand(name="filler", topic=topic, draw=draw), ","]
        spoken.append(token)
        clause.append(token)
        if draw() < manner.repeat:
            spoken.append(token)
    return spoken


def _restart(clause: list[str], draw: Draw) -> list[str]:
    """Say the last one to three words again, sometimes with another pronoun."""
    again = clause[-(1 + int(3 * draw())) :]
    if again[0] in _PRONOUNS and draw() < 0.4:
        again = [_PRONOUNS[int(len(_PRONOUNS) * draw())], *again[1:]]
    return again


def transcript(tokens: list[str]) -> str:
    """The words without punctuation."""
    return " ".join(token for token in tokens if token not in PUNCTUATION)


def spelling(tokens: list[str]) -> str:
    """The text with punctuation, for the voice."""
    text = " ".join(tokens)
    for mark in PUNCTUATION:
        text = text.replace(f" {mark}", mark)
    return text
