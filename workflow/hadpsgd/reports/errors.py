"""What a run got wrong on a set: by speaker, length and noise, by confusion, sentence by sentence,
and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from hadpsgd.corpus.datadir import AudioReader, DataDir, Utterance
from hadpsgd.reports import bins, listing
from hadpsgd.reports.bins import Bin
from hadpsgd.reports.causes import UNTESTED, Cause, summary
from hadpsgd.reports.confusions import Confusion, Confusions, confusions
from hadpsgd.reports.listing import Clip
from hadpsgd.reports.pieces import Silent, pieces, silent
from hadpsgd.reports.sound import Sound, chosen, listen
from hadpsgd.reports.stretches import Stretch, said
from hadpsgd.reports.stretches import heard as recognised_at
from hadpsgd.scoring import nist
from hadpsgd.scoring.align import Counts
from hadpsgd.scoring.nist import Sentence

LISTED = 5000
"""Wrong sentences that a page lists: some megabytes, and quick to filter."""
MINUTES = 15.0
"""Audio that a page has of each set: at 8 kHz 10 megabytes of it."""


@dataclass(frozen=True)
class SetErrors:
    """The errors of one set, and what is known of its sentences.

    utterances: by sentence, the utterance that it is. causes: by utterance, why it is wrong.
    listed: wrong sentences that the page lists.
    """

    name: str
    sentences: Sequence[Sentence]
    data: DataDir
    utterances: Mapping[str, str]
    causes: Mapping[str, Cause]
    listed: int = LISTED
    sound: Sound = field(default_factory=Sound)

    @cached_property
    def total(self) -> Counts:
        """Counts of the set."""
        return nist.total(self.sentences)

    @cached_property
    def confusions(self) -> Confusions:
        """What was taken for what."""
        return confusions(self.sentences)

    @cached_property
    def wrong(self) -> list[Sentence]:
        """Sentences with errors, those with most first."""
        wrong = [s for s in self.sentences if s.counts.errors]
        return sorted(wrong, key=lambda s: (-s.counts.errors, s.name))

    @property
    def unlisted(self) -> int:
        """Wrong sentences that the page does not list."""
        return max(0, len(self.wrong) - self.listed)

    @property
    def silent(self) -> Silent:
        """Wrong sentences that are listed without audio."""
        return silent(self.wrong[: self.listed], self.pieces, self.sound)

    @cached_property
    def pieces(self) -> dict[str, Utterance]:
        """By sentence, what of its recording it is."""
        return pieces(self.sentences, self.utterances, self.data)

    @cached_property
    def speakers(self) -> list[tuple[str, str, Counts]]:
        """Speaker, gender (empty if unknown) and counts, the worst first."""
        genders = {speaker.lower(): gender for speaker, gender in self.data.gender.items()}
        rows = nist.by_speaker(self.sentences).items()
        speakers = [(who, genders.get(who, ""), counts) for who, counts in rows]
        return sorted(speakers, key=lambda row: (-row[2].wer if row[2].words else 0.0, row[0]))

    @cached_property
    def groups(self) -> dict[str, list[Bin]]:
        """Error rates by words, by seconds and by noise."""
        decibels = {s.name: self._decibels(s) for s in self.sentences}
        return {
            "words": bins.lengths(self.sentences),
            "seconds": bins.durations(self.sentences),
            "snr": bins.noise(self.sentences, decibels),
        }

    @cached_property
    def why(self) -> dict[str, dict[str, int]]:
        """Sentences and errors of each cause."""
        found = {s.name: self.cause(s) for s in self.wrong}
        return summary(found, {s.name: s.counts.errors for s in self.wrong})

    def cause(self, sentence: Sentence) -> Cause:
        """Why it is wrong."""
        return self.causes.get(self.utterances.get(sentence.name, ""), Cause(UNTESTED))

    def wanted(self) -> list[str]:
        """Pieces worth hearing: of each listed confusion one, then the worst sentences."""
        first = [self.sentences[number] for number in self.confusions.heard_first()]
        names = [sentence.name for sentence in [*first, *self.wrong]]
        return [self.pieces[name].id for name in names if name in self.pieces]

    @cached_property
    def clips(self) -> list[str]:
        """Audio of the page: FLAC in base64."""
        return list(self.sound.clips.values())

    def heard(self, reader: AudioReader, *, minutes: float) -> SetErrors:
        """The same with noise and audio, of which the page has so many minutes."""
        there = self.pieces
        lengths = {there[s.name].id: bins.seconds(s) for s in self.sentences if s.name in there}
        clips = chosen(self.wanted(), lengths, 60.0 * minutes)
        return replace(self, sound=listen(reader, there.values(), clips))

    def plays(self, confusion: Confusion) -> list[dict[str, str]]:
        """Its examples with audio: sentence, what to play of the word said and of the one
        recognised."""
        found = []
        for place in confusion.examples:
            sentence = self.sentences[place.sentence]
            clip = self._clip(sentence)
            if clip is not None:
                truth, guess = self._stretches(sentence)[place.edit]
                plays = {"said": clip.play(truth), "recognised": clip.play(guess)}
                found.append({"sentence": sentence.name, **plays})
        return [each for each in found if each["said"] or each["recognised"]]

    def rows(self) -> list[dict[str, Any]]:
        """The wrong sentences that are listed, as the page's script reads them."""
        return [self._row(sentence) for sentence in self.wrong[: self.listed]]

    def as_json(self) -> dict[str, Any]:
        """The same for programs, without the sentences."""
        return {
            "words": self.total.words,
            "errors": self.total.errors,
            "wer": round(self.total.wer, 3) if self.total.words else None,
            "causes": self.why,
            "speakers": {
                name: {"words": c.words, "errors": c.errors} for name, _, c in self.speakers
            },
            "by": {kind: [each.as_json() for each in rows] for kind, rows in self.groups.items()},
            **self.confusions.as_json(),
        }

    def _decibels(self, sentence: Sentence) -> float | None:
        piece = self.pieces.get(sentence.name)
        return self.sound.decibels.get(piece.id) if piece else None

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {piece: number for number, piece in enumerate(self.sound.clips)}

    def _clip(self, sentence: Sentence) -> Clip | None:
        piece = self.pieces.get(sentence.name)
        number = self._numbers.get(piece.id) if piece else None
        return None if number is None else Clip(number=number, begin=self._begin(sentence))

    def _begin(self, sentence: Sentence) -> float:
        piece = self.pieces.get(sentence.name)
        return piece.start if piece else 0.0

    def _stretches(self, sentence: Sentence) -> list[tuple[Stretch | None, Stretch | None]]:
        """Of each edit, where its word was said and where one was recognised."""
        truth = said(sentence, self.cause(sentence).said)
        return list(zip(truth, recognised_at(sentence), strict=True))

    def _row(self, sentence: Sentence) -> dict[str, Any]:
        cause, begin = self.cause(sentence), self._begin(sentence)
        clip, decibels = self._clip(sentence), self._decibels(sentence)
        columns = [
            [
                listing.cell(e.ref, kind=e.kind, stretch=truth, begin=begin),
                listing.cell(e.hyp, kind=e.kind, stretch=guess, begin=begin),
            ]
            for e, (truth, guess) in zip(sentence.edits, self._stretches(sentence), strict=True)
        ]
        return listing.row(
            name=self.utterances.get(sentence.name, sentence.name),
            clip=clip.number if clip else None,
            begin=begin,
            tags=[
                f"{sentence.counts.errors} errors in {sentence.counts.words} words",
                _told(cause),
                "" if decibels is None else f"SNR {decibels:.0f} dB",
            ],
            columns=columns,
            fields={
                "speaker": sentence.speaker,
                "cause": cause.kind,
                "errors": sentence.counts.errors,
                "seconds": bins.seconds(sentence),
                "snr": decibels,
            },
        )


def pattern(confusion: Confusion) -> list[list[str | None]]:
    """The column of an alignment that it is, as sentences.js looks for it: of what was said, then
    of what was recognised, the text and the kind of edit; null is any."""
    ref, hyp = confusion.ref, confusion.hyp
    if hyp is None:
        return [[ref, "D"]]
    return [[ref or "", None], [hyp, "I" if ref is None else "S"]]


def _told(cause: Cause) -> str:
    if cause.unknown:
        return f"{cause.kind}: {', '.join(cause.unknown)}"
    return cause.kind + ("" if cause.margin is None else f", margin {cause.margin:+.2f}")
