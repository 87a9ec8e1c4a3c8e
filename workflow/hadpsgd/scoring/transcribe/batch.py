"""Recordings as one data directory, through the recogniser, into transcripts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from hadpsgd.corpus.datadir import DataDir, Utterance
from hadpsgd.errors import UserError
from hadpsgd.parallel import map_in_order
from hadpsgd.scoring.formats import TimedWord
from hadpsgd.scoring.transcribe.channels import Apart, take_apart
from hadpsgd.scoring.transcribe.recognise import Done, Recogniser
from hadpsgd.scoring.transcribe.sources import Source
from hadpsgd.scoring.transcribe.speakers import Speakers
from hadpsgd.scoring.transcribe.speech import FRAME, speech
from hadpsgd.scoring.transcribe.transcript import Segment, Transcript, by_time, channel_names

SECONDS = 3600.0
"""Audio of a batch; a longer recording is one by itself."""


def batches(
    sources: Sequence[tuple[Source, float]], speakers: Speakers
) -> Iterator[list[tuple[Source, float]]]:
    """Recordings with their seconds, as many together as a batch has room for.

    Those of a speaker come together, where the first of them stands; they are in one batch but
    where that has no room for them.
    """
    groups: dict[str | Source, list[tuple[Source, float]]] = defaultdict(list)
    for each in sources:
        groups[speakers.group(each[0])].append(each)
    batch: list[tuple[Source, float]] = []
    for group in groups.values():
        if batch and _seconds(batch) + _seconds(group) > SECONDS:
            yield batch
            batch = []
        for each in group:
            if batch and _seconds(batch) + each[1] > SECONDS:
                yield batch
                batch = []
            batch.append(each)
    if batch:
        yield batch


def _seconds(batch: Sequence[tuple[Source, float]]) -> float:
    return sum(seconds for _, seconds in batch)


@dataclass(frozen=True)
class Outcome:
    """A recording's transcript, or why there is none."""

    source: Source
    transcript: Transcript | None
    why: str = ""


def transcribe(
    recogniser: Recogniser, sources: Sequence[Source], speakers: Speakers, work: Path, done: Done
) -> list[Outcome]:
    """Transcripts of a batch. `work` is a folder for what lies between.

    Raises:
        UserError: the bundle's parts do not fit, or the disk is full.
    """
    rate = recogniser.bundle.manifest.sample_rate
    tasks = list(enumerate(sources))
    make = partial(_reader, work / "audio", rate)
    parts = list(map_in_order(make, tasks, min(recogniser.jobs, len(tasks))))
    cuts = {
        _side(number, channel): speech(each.levels)
        for number, apart in enumerate(parts)
        if isinstance(apart, Apart)
        for channel, each in enumerate(apart.channels)
    }
    known = {
        _side(number, channel): speaker
        for (number, source), apart in zip(tasks, parts, strict=True)
        if isinstance(apart, Apart)
        for channel, name in enumerate(channel_names(len(apart.channels)))
        if (speaker := speakers.of(source, name))
    }
    data = work / "data" / "recordings"
    words = _recognised(recogniser, cuts, known, data, work, done) if any(cuts.values()) else {}
    return [
        Outcome(source, None, apart)
        if isinstance(apart, str)
        else Outcome(source, _transcript(source, number, apart, cuts, known, words))
        for (number, source), apart in zip(tasks, parts, strict=True)
    ]


def _reader(folder: Path, rate: int) -> Callable[[tuple[int, Source]], Apart | str]:
    def read(task: tuple[int, Source]) -> Apart | str:
        number, source = task
        try:
            return take_apart(source.path, folder=folder / f"{number}", rate=rate)
        except UserError as error:
            return str(error)

    return read


def _side(number: int, channel: int) -> str:
    """Name of a channel of a recording, as data directories want it."""
    return f"r{number:06d}-{channel:02d}"


Span = tuple[str, int, int]
"""A side, and begin and end of an utterance there in frames."""


def _ids(sides: Iterable[str], known: dict[str, str]) -> dict[str, str]:
    """Speaker of each side, as data directories want it: of one width, and with the utterances'
    names beginning with it, both sort alike, whatever the user calls the speakers."""
    numbers: dict[tuple[str, ...], str] = {}
    return {
        side: numbers.setdefault(
            ("named", known[side]) if side in known else (side,), f"s{len(numbers):06d}"
        )
        for side in sides
    }


def _recognised(
    recogniser: Recogniser,
    cuts: dict[str, list[tuple[int, int]]],
    known: dict[str, str],
    data: Path,
    work: Path,
    done: Done,
) -> dict[Span, tuple[TimedWord, ...]]:
    """Words of every utterance; a side whose speaker is not known is one."""
    speakers = _ids(cuts, known)
    spans = {
        f"{speakers[side]}-{side}-{begin:08d}-{end:08d}": (side, begin, end)
        for side, segments in cuts.items()
        for begin, end in segments
    }
    utterances = {
        name: Utterance(
            id=name,
            speaker=speakers[side],
            recording=side,
            start=begin * FRAME,
            end=end * FRAME,
        )
        for name, (side, begin, end) in spans.items()
    }
    audio = {
        side: str((work / "audio" / f"{int(side[1:7])}" / f"{int(side[8:])}.wav").resolve())
        for side in cuts
    }
    DataDir(data, dict(sorted(utterances.items())), dict(sorted(audio.items()))).write(data)
    return {spans[found.utterance]: tuple(found.words) for found in recogniser(data, work, done)}


def _transcript(
    source: Source,
    number: int,
    apart: Apart,
    cuts: dict[str, list[tuple[int, int]]],
    known: dict[str, str],
    words: dict[Span, tuple[TimedWord, ...]],
) -> Transcript:
    names = channel_names(len(apart.channels))
    segments: dict[str, list[Segment]] = defaultdict(list)
    for channel, name in enumerate(names):
        side = _side(number, channel)
        for begin, end in cuts[side]:
            said = words.get((side, begin, end), ())
            segments[name].append(
                Segment(
                    channel=name,
                    speaker=known.get(side, f"{source.key}-{name}"),
                    begin=begin * FRAME,
                    end=end * FRAME,
                    words=tuple(replace(word, file=source.key, channel=name) for word in said),
                )
            )
    every = [segment for part in segments.values() for segment in part]
    return Transcript(
        name=source.name, seconds=apart.seconds, channels=names, segments=by_time(every)
    )
