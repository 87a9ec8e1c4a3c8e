"""Where words of utterances stand in CTM and STM: file and channel, apart where they overlap."""

from __future__ import annotations

from itertools import count

from hadpsgd.corpus.datadir import DataDir, Utterance
from hadpsgd.files import plain_or_gzipped

Place = tuple[str, str]


def places(data: DataDir) -> dict[str, Place]:
    """File and channel under which each utterance is scored.

    With an stm those of its recording. Without one the utterances are the reference: NIST's tools
    give words to segments by time alone, so an utterance that overlaps one before it stands in a
    file of its own (r-2, r-3, ... beside r), where it meets its own words. (Names of channels
    are no place for it: hubscr wants letters or numbers alone.) They fold case, too: recordings
    that differ in it alone are one file.
    """
    true = _spelled_once({utterance.id: data.file_and_channel(utterance) for utterance in data})
    if plain_or_gzipped(data.path / "stm").exists():
        return true
    by_channel: dict[Place, list[Utterance]] = {}
    for utterance in data:
        by_channel.setdefault(_key(true[utterance.id]), []).append(utterance)
    taken = set(by_channel)
    for utterances in by_channel.values():
        lanes: list[tuple[str, float]] = []  # suffix of the file, end of its last utterance
        for utterance in sorted(utterances, key=lambda u: (u.start, u.id)):
            file, channel = true[utterance.id]
            free = (i for i, (_, end) in enumerate(lanes) if end <= utterance.start)
            number = next(free, len(lanes))
            if number == len(lanes):
                lanes.append((_suffix(file, channel, taken) if lanes else "", 0.0))
            suffix = lanes[number][0]
            end = float("inf") if utterance.end is None else utterance.end
            lanes[number] = suffix, end
            true[utterance.id] = file + suffix, channel
    return true


def said(data: DataDir, placed: dict[str, Place]) -> str:
    """A line on the utterances that stand in files of their own; empty where none does."""
    apart = [each.id for each in data if _key(placed[each.id]) != _key(data.file_and_channel(each))]
    if not apart:
        return ""
    first = f"(first: {apart[0]}, scored as file {placed[apart[0]][0]})"
    what = "utterance overlaps" if len(apart) == 1 else "utterances overlap"
    return f"{data.path}: {len(apart)} {what} another of its channel {first}"


def _spelled_once(true: dict[str, Place]) -> dict[str, Place]:
    """The same places, names spelled as they are first: sorted by two spellings, the segments
    and words of one file would be out of order."""
    files: dict[str, str] = {}
    channels: dict[str, str] = {}
    return {
        name: (files.setdefault(file.lower(), file), channels.setdefault(channel.lower(), channel))
        for name, (file, channel) in true.items()
    }


def _suffix(file: str, channel: str, taken: set[Place]) -> str:
    """A suffix that makes a file which no other utterance has; it is taken then."""
    suffixes = (f"-{number}" for number in count(2))
    suffix = next(s for s in suffixes if _key((file + s, channel)) not in taken)
    taken.add(_key((file + suffix, channel)))
    return suffix


def _key(place: Place) -> Place:
    return place[0].lower(), place[1].lower()
