"""What a set is scored against and how: its STM, its GLM, NIST's options."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hadpsgd.corpus import stm as stm_file
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.corpus.glm import read as rules_of
from hadpsgd.corpus.stm import Segment
from hadpsgd.files import plain_or_gzipped
from hadpsgd.scoring import formats, glm, nist, sclite
from hadpsgd.scoring.filters import Filters
from hadpsgd.scoring.formats import TimedWord
from hadpsgd.scoring.hypotheses import segments
from hadpsgd.scoring.nist import Options, Sentence
from hadpsgd.texts import words_of

LONGEST = 3000
"""Words of a segment that NIST's tools are still asked about: sclite's time grows with their cube,
5 processor seconds for 800."""


@dataclass(frozen=True)
class Reference:
    """The segments of a set, and the GLM that both sides pass (None: scored as they are).

    With a GLM the options are those of NIST's hubscr: fragments match what they begin, and
    optional words may be left out.
    """

    segments: list[Segment]
    glm: Path | None = None
    comments: tuple[str, ...] = ()
    """Comment lines of its STM, which define the labels of segments."""

    @property
    def options(self) -> Options:
        """Options of the alignment."""
        return Options(fragments=bool(self.glm), optional_deletion=bool(self.glm))

    @classmethod
    def of(cls, data: DataDir, seconds: dict[str, float], filters: Filters) -> Reference:
        """The data directory's `stm` and `glm`; without stm, its transcripts, which pass the
        filters of hypotheses: a noise that counts in one of both is always an error.

        Raises:
            UserError: the STM is none, or the transcripts cannot be one.
        """
        stm, rules = (plain_or_gzipped(data.path / name) for name in ("stm", "glm"))
        glm_path = rules if rules.exists() else None
        if not stm.exists():
            said = segments(data, seconds)
            said = [replace(s, text=filters.text(s.text)) for s in said]
            stm_file.check_transcripts(data.path / "text", said)
            labelled = any(segment.text.startswith("<") for segment in said)
            return cls(said, glm_path, stm_file.COMMENTS if labelled else ())
        return cls.read(stm=stm, glm_path=glm_path)

    @classmethod
    def read(cls, *, stm: Path, glm_path: Path | None = None) -> Reference:
        """Of an STM file and, where there is one, a GLM.

        Raises:
            UserError: the STM is missing, empty or not one.
        """
        return cls(stm_file.read(stm), glm_path, tuple(stm_file.read_comments(stm)))

    def filtered(self, words: Sequence[TimedWord]) -> tuple[list[Segment], list[TimedWord]]:
        """Reference and hypothesis after the GLM."""
        if self.glm is None:
            return self.segments, list(words)
        return (
            list(glm.filter_segments(rules_of(self.glm, "stm"), self.segments)),
            list(glm.filter_words(rules_of(self.glm, "ctm"), words)),
        )

    def score(self, words: Sequence[TimedWord]) -> list[Sentence]:
        """Score timed words (in NIST's order)."""
        reference, hypothesis = self.filtered(words)
        return nist.score_ctm(reference, hypothesis, self.options)

    def checked(self, words: Sequence[TimedWord], scored: Sequence[Sentence]) -> dict[str, Any]:
        """What NIST's tools say of the same files: {} where they are not installed."""
        ours = nist.by_speaker(scored)
        name = "hubscr" if self.glm else "sclite"
        longest = max((len(sentence.edits) for sentence in scored), default=0)
        if longest > LONGEST and sclite.command("sclite"):
            what = f"not asked: a segment of {longest} words takes it very long"
            return {"tool": name, "failed": what}
        if self.glm is None:
            verdict = sclite.run(self.segments, words, self.options)
        else:
            with tempfile.TemporaryDirectory() as folder:
                stm, ctm = Path(folder) / "stm", Path(folder) / "ctm"
                formats.write_lines(stm, self.segments, self.comments)
                formats.write_lines(ctm, words)
                verdict = sclite.hubscr(glm=self.glm, stm=stm, ctm=ctm)
        if verdict is None:
            return {}
        if verdict.failure:
            return {"tool": name, "failed": verdict.failure}
        different = sclite.differences(ours, verdict.speakers)
        return {"tool": name, "agrees": not different, "different_speakers": different}


class TextFilter:
    """A set's GLM for transcripts by utterance, as tuning needs it.

    Transcripts pass the filters of hypotheses first: those are what they are compared with, also
    where an stm gives the reference of the score.
    """

    def __init__(self, data: DataDir, filters: Filters) -> None:
        path = plain_or_gzipped(data.path / "glm")
        self._filters = filters
        self._exists = path.exists()
        if self._exists:
            self._ref, self._hyp = rules_of(path, "stm"), rules_of(path, "ctm")
        self.options = Options(fragments=self._exists, optional_deletion=self._exists)

    def ref(self, text: str) -> str:
        """A reference after the rules."""
        text = self._filters.text(text)
        return self._ref.filter(text) if self._exists else text

    def hyp(self, text: str) -> list[str]:
        """A hypothesis' words after the rules, as those of a CTM."""
        words = words_of(text)
        if not self._exists:
            return words
        timed = (
            TimedWord(file="", channel="", begin=0.0, duration=0.0, word=word) for word in words
        )
        return [word.word for word in glm.filter_words(self._hyp, timed)]
