"""What of its recording a scored sentence is, and why it cannot be heard on a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from hadpsgd.corpus.datadir import DataDir, Utterance
from hadpsgd.reports.sound import Sound
from hadpsgd.scoring.nist import Sentence
from hadpsgd.scoring.places import places


@dataclass(frozen=True, kw_only=True)
class Silent:
    """Sentences without audio, by why.

    beyond: the page has no room for more. unread: it cannot be read. nowhere: the data directory
    has none of theirs.
    """

    beyond: int = 0
    unread: int = 0
    nowhere: int = 0


def pieces(
    sentences: Iterable[Sentence], utterances: Mapping[str, str], data: DataDir
) -> dict[str, Utterance]:
    """By sentence, what is to be read; those whose file and channel the data lack are left out.

    That is its utterance, or, where it is none, what its segment cuts out of the recording: a side
    without segments is one utterance, and its stm has many sentences.

    Args:
        sentences: scored ones.
        utterances: by sentence, the utterance that it is.
        data: where these are.
    """
    placed = places(data)
    sides = {(f.lower(), c.lower()): data.utterances[name] for name, (f, c) in placed.items()}
    found = {}
    for sentence in sentences:
        segment = sentence.segment
        if name := utterances.get(sentence.name):
            found[sentence.name] = data.utterances[name]
        elif segment and (side := sides.get(segment.key)):
            cut = f"{side.id} {segment.begin:.2f}-{segment.end:.2f}"  # no id has a space
            found[sentence.name] = replace(side, id=cut, start=segment.begin, end=segment.end)
    return found


def silent(sentences: Iterable[Sentence], found: Mapping[str, Utterance], sound: Sound) -> Silent:
    """Why sentences of a page have no audio there."""
    counts = {"beyond": 0, "unread": 0, "nowhere": 0}
    for sentence in sentences:
        piece = found.get(sentence.name)
        if piece is None:
            counts["nowhere"] += 1
        elif piece.id not in sound.clips:
            counts["beyond" if piece.id in sound.decibels else "unread"] += 1
    return Silent(**counts)
