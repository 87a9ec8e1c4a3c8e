"""What the page of two runs' errors shows of one set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from hadpsgd.corpus.datadir import AudioReader, DataDir
from hadpsgd.reports import bins, listing
from hadpsgd.reports.bins import Bin
from hadpsgd.reports.causes import utterances_of
from hadpsgd.reports.sound import Sound, begin_of, chosen, listen
from hadpsgd.reports.two_runs import Column, Pair, Side, TwoRuns, outcome
from hadpsgd.scoring import nist
from hadpsgd.scoring.align import Counts
from hadpsgd.scoring.nist import Sentence
from hadpsgd.scoring.significance import Mapsswe, mapsswe

Both = tuple[str, Counts, Counts]
"""A group of sentences and the counts of both runs."""


@dataclass(frozen=True)
class SetPairs:
    """Two runs on one set; without a data directory there is no audio.

    listed: sentences that the page lists.
    """

    name: str
    first: Sequence[Sentence]
    second: Sequence[Sentence]
    data: DataDir | None
    listed: int
    sound: Sound = field(default_factory=Sound)

    @cached_property
    def runs(self) -> TwoRuns:
        """Both side by side."""
        return TwoRuns.of(self.first, self.second)

    @cached_property
    def test(self) -> Mapsswe:
        """Whether they differ."""
        return mapsswe(self.first, self.second)

    @cached_property
    def utterances(self) -> dict[str, str]:
        """By sentence, the utterance that it is."""
        return utterances_of(self.first, self.data) if self.data else {}

    @property
    def unlisted(self) -> int:
        """Wrong sentences that the page does not list."""
        return max(0, len(self.runs.wrong) - self.listed)

    @property
    def silent(self) -> int:
        """Sentences that are listed without audio."""
        return sum(row["clip"] is None for row in self.rows)

    @property
    def clips(self) -> list[str]:
        """Audio of the page: FLAC in base64."""
        return list(self.sound.clips.values())

    @cached_property
    def speakers(self) -> list[Both]:
        """Counts by speaker, the largest difference first."""
        one, two = nist.by_speaker(self.first), nist.by_speaker(self.second)
        rows = [(who, one[who], two[who]) for who in one if who in two]
        return sorted(rows, key=lambda r: (-abs(r[1].errors - r[2].errors), r[0]))

    @cached_property
    def groups(self) -> dict[str, list[Both]]:
        """Counts by seconds and by noise."""
        decibels = {s.name: self._decibels(s) for s in self.first}

        def both(one: list[Bin], two: list[Bin]) -> list[Both]:
            return [(a.name, a.counts, b.counts) for a, b in zip(one, two, strict=True)]

        return {
            "By seconds": both(bins.durations(self.first), bins.durations(self.second)),
            "By SNR in dB": both(
                bins.noise(self.first, decibels), bins.noise(self.second, decibels)
            ),
        }

    def heard(self, reader: AudioReader, *, minutes: float) -> SetPairs:
        """The same with noise and audio, of which the page has so many minutes."""
        lengths = {
            self.utterances[s.name]: bins.seconds(s)
            for s in self.first
            if s.name in self.utterances
        }
        names = [p.first.name for p in self.runs.wrong[: self.listed]]
        wanted = [self.utterances[name] for name in names if name in self.utterances]
        return replace(self, sound=listen(reader, lengths, chosen(wanted, lengths, 60 * minutes)))

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The sentences that are listed, as the page's script reads them."""
        return [self._row(pair) for pair in self.runs.wrong[: self.listed]]

    def _decibels(self, sentence: Sentence) -> float | None:
        return self.sound.decibels.get(self.utterances.get(sentence.name, ""))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {utterance: number for number, utterance in enumerate(self.sound.clips)}

    def _row(self, pair: Pair) -> dict[str, Any]:
        sentence = pair.first
        utterance = self.utterances.get(sentence.name, "")
        begin = begin_of(self.data.utterances.get(utterance) if self.data else None)
        decibels = self._decibels(sentence)
        counts = [side.counts.errors for side in (pair.first, pair.second)]
        return listing.row(
            name=utterance or sentence.name,
            clip=self._numbers.get(utterance),
            begin=begin,
            tags=[
                f"{counts[0]} and {counts[1]} errors in {sentence.counts.words} words",
                "" if pair.alike else "compared with other words: alternatives of the reference",
                "" if decibels is None else f"SNR {decibels:.0f} dB",
            ],
            columns=[_cells(column, begin) for column in pair.columns],
            fields={
                "speaker": sentence.speaker,
                "outcome": outcome(pair),
                "errors": sum(counts),
                "gain": pair.apart,
                "apart": abs(pair.apart),
                "seconds": bins.seconds(sentence),
                "snr": decibels,
            },
        )


def _cells(column: Column, begin: float) -> list[listing.Cell]:
    """What was said, and what each run recognised; a word that a run left out is an empty D."""

    def side(each: Side) -> listing.Cell:
        if each.edit is None:
            return [""]
        if each.edit.kind == "D":
            return ["", "D"]
        return listing.cell(each.edit.hyp, kind=each.edit.kind, stretch=each.stretch, begin=begin)

    return [
        listing.cell(column.ref, kind="", stretch=column.said, begin=begin),
        side(column.first),
        side(column.second),
    ]
