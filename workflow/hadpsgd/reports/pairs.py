"""What the page of two runs' errors shows of one set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from hadpsgd.corpus.datadir import AudioReader, DataDir, Utterance
from hadpsgd.reports import bins, listing
from hadpsgd.reports.bins import Bin
from hadpsgd.reports.causes import utterances_of
from hadpsgd.reports.pieces import Silent, pieces, silent
from hadpsgd.reports.sound import Sound, chosen, listen
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

    @cached_property
    def pieces(self) -> dict[str, Utterance]:
        """By sentence, what of its recording it is."""
        return pieces(self.first, self.utterances, self.data) if self.data else {}

    @property
    def silent(self) -> Silent:
        """Sentences that are listed without audio."""
        listed = [pair.first for pair in self.runs.wrong[: self.listed]]
        return silent(listed, self.pieces, self.sound)

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
        there = self.pieces
        lengths = {there[s.name].id: bins.seconds(s) for s in self.first if s.name in there}
        names = [p.first.name for p in self.runs.wrong[: self.listed]]
        clips = chosen([there[name].id for name in names if name in there], lengths, 60 * minutes)
        return replace(self, sound=listen(reader, there.values(), clips))

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The sentences that are listed, as the page's script reads them."""
        return [self._row(pair) for pair in self.runs.wrong[: self.listed]]

    def _decibels(self, sentence: Sentence) -> float | None:
        piece = self.pieces.get(sentence.name)
        return self.sound.decibels.get(piece.id) if piece else None

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {piece: number for number, piece in enumerate(self.sound.clips)}

    def _row(self, pair: Pair) -> dict[str, Any]:
        sentence = pair.first
        piece = self.pieces.get(sentence.name)
        begin = piece.start if piece else 0.0
        decibels = self._decibels(sentence)
        counts = [side.counts.errors for side in (pair.first, pair.second)]
        return listing.row(
            name=self.utterances.get(sentence.name, sentence.name),
            clip=self._numbers.get(piece.id) if piece else None,
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
