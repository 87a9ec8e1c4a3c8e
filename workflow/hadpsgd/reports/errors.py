"""What a run got wrong on a set: by speaker, by confusion, sentence by sentence, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hadpsgd.corpus import audio
from hadpsgd.corpus.datadir import AudioReader, DataDir
from hadpsgd.reports.causes import UNTESTED, Cause, summary
from hadpsgd.scoring import nist
from hadpsgd.scoring.align import Counts, Edit
from hadpsgd.scoring.nist import Sentence

TOP = 25
"""Confusions listed of each kind."""


@dataclass(frozen=True)
class Confusions:
    """How often: word for word, left out, put in; the most frequent first."""

    substituted: list[tuple[str, str, int]]
    deleted: list[tuple[str, int]]
    inserted: list[tuple[str, int]]


def confusions(sentences: Sequence[Sentence]) -> Confusions:
    """All confusions of a set."""
    edits = [edit for sentence in sentences for edit in sentence.edits]
    pairs = Counter((str(e.ref), str(e.hyp)) for e in edits if e.kind == "S")
    deleted = Counter(str(e.ref) for e in edits if e.kind == "D")
    inserted = Counter(str(e.hyp) for e in edits if e.kind == "I")

    def ordered(counts: Counter[Any]) -> list[tuple[Any, int]]:
        return sorted(counts.items(), key=lambda item: (-item[1], item[0]))

    return Confusions(
        [(ref, hyp, count) for (ref, hyp), count in ordered(pairs)],
        ordered(deleted),
        ordered(inserted),
    )


@dataclass(frozen=True)
class WrongSentence:
    """A sentence with errors; audio is a file beside the page, or empty."""

    sentence: Sentence
    utterance: str
    cause: Cause
    audio: str = ""

    @property
    def columns(self) -> list[tuple[Edit, str]]:
        """Its edits, each with what is known of the hypothesis' word: its time, its confidence."""
        return [(edit, self._hint(edit)) for edit in self.sentence.edits]

    def _hint(self, edit: Edit) -> str:
        words = self.sentence.words
        # a word's arc is its place only where no alternation lies before it
        if not 0 < edit.hyp_arc <= len(words) or any(w.word.startswith("<ALT") for w in words):
            return ""
        word = words[edit.hyp_arc - 1]
        sure = "" if word.confidence is None else f", confidence {word.confidence:.2f}"
        return f"{word.begin:.2f} s{sure}"


@dataclass(frozen=True)
class SetErrors:
    """All that the page shows of one set."""

    name: str
    total: Counts
    speakers: list[tuple[str, str, Counts]]
    """Speaker, gender (empty if unknown) and counts, the worst first."""
    confusions: Confusions
    causes: dict[str, dict[str, int]]
    wrong: list[WrongSentence]
    """Those listed, the worst first."""
    unlisted: int
    """Wrong sentences beyond them."""

    def as_json(self) -> dict[str, Any]:
        """The same for programs, without the sentences."""
        return {
            "words": self.total.words,
            "errors": self.total.errors,
            "wer": round(self.total.wer, 3) if self.total.words else None,
            "causes": self.causes,
            "speakers": {
                name: {"words": c.words, "errors": c.errors} for name, _, c in self.speakers
            },
            "substituted": self.confusions.substituted[:TOP],
            "deleted": self.confusions.deleted[:TOP],
            "inserted": self.confusions.inserted[:TOP],
        }


def analyse(
    name: str,
    sentences: Sequence[Sentence],
    data: DataDir,
    utterances: Mapping[str, str],
    found: Mapping[str, Cause],
    listed: int,
) -> SetErrors:
    """Sort out the errors of a set.

    Args:
        name: of the set.
        sentences: as scored.
        data: its data directory.
        utterances: by sentence, the utterance that it is.
        found: by utterance, why it is wrong.
        listed: how many wrong sentences to list.
    """
    wrong = [s for s in sentences if s.counts.errors]
    wrong.sort(key=lambda s: (-s.counts.errors, s.name))
    causes = {s.name: found.get(utterances.get(s.name, ""), Cause(UNTESTED)) for s in wrong}
    genders = {speaker.lower(): gender for speaker, gender in data.gender.items()}
    speakers = [(who, genders.get(who, ""), c) for who, c in nist.by_speaker(sentences).items()]
    speakers.sort(key=lambda row: (-row[2].wer if row[2].words else 0.0, row[0]))
    chosen = [WrongSentence(s, utterances.get(s.name, ""), causes[s.name]) for s in wrong[:listed]]
    return SetErrors(
        name,
        nist.total(sentences),
        speakers,
        confusions(sentences),
        summary(causes, {s.name: s.counts.errors for s in wrong}),
        chosen,
        len(wrong) - len(chosen),
    )


def with_audio(errors: SetErrors, reader: AudioReader, folder: Path) -> SetErrors:
    """The same, with FOLDER/audio/<set>/NNNN.wav written for every listed sentence.

    Raises:
        UserError: audio is missing or damaged.
    """
    target = folder / "audio" / errors.name
    target.mkdir(parents=True, exist_ok=True)
    files: dict[str, str] = {}
    # in the order of the recordings: each is opened once
    for number, wrong in sorted(enumerate(errors.wrong), key=lambda item: item[1].utterance):
        if wrong.utterance:
            path = target / f"{number + 1:04d}.wav"
            samples = reader.read(reader.data.utterances[wrong.utterance])
            whole = np.clip(np.rint(samples), -32768, 32767).astype(np.int16)
            audio.write_wav(path, whole, reader.sample_rate)
            files[wrong.sentence.name] = path.relative_to(folder).as_posix()
    listed = [replace(w, audio=files.get(w.sentence.name, "")) for w in errors.wrong]
    return replace(errors, wrong=listed)
