"""A scored set: its counts and alignments, as files and as a line."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hadpsgd.scoring import formats, nist, sentences
from hadpsgd.scoring.align import Counts
from hadpsgd.scoring.formats import TimedWord
from hadpsgd.scoring.reference import Reference


@dataclass(frozen=True)
class Scored:
    """Timed words scored against a reference.

    checked: what NIST's own tools say of them ({}: not asked, or not installed).
    """

    reference: Reference
    words: list[TimedWord]
    sentences: list[nist.Sentence]
    checked: dict[str, Any]

    @classmethod
    def of(cls, reference: Reference, words: list[TimedWord], *, nist_tools: bool) -> Scored:
        """Score words (in NIST's order); `nist_tools`: ask NIST's tools too."""
        found = reference.score(words)
        return cls(reference, words, found, reference.checked(words, found) if nist_tools else {})

    def write(self, folder: Path, report: Mapping[str, Any]) -> None:
        """Write stm, ctm, both after the GLM (*.filt), alignments.txt, sentences.jsonl and
        wer.json, which has the report too."""
        reference = self.reference
        formats.write_lines(folder / "ctm", self.words)
        formats.write_lines(folder / "stm", reference.segments, reference.comments)
        if reference.glm:
            ref, hyp = reference.filtered(self.words)
            formats.write_lines(folder / "stm.filt", ref, reference.comments)
            formats.write_lines(folder / "ctm.filt", hyp)
        (folder / "alignments.txt").write_text(_readable(self.sentences), "utf-8")
        sentences.write(folder / sentences.FILE, self.sentences)
        content = {
            **_summary(self.sentences),
            **report,
            "glm": bool(reference.glm),
            "nist": self.checked,
        }
        (folder / "wer.json").write_text(json.dumps(content, indent=2) + "\n")

    def say(self, name: str) -> None:
        """The word error rate on stderr; and where NIST's tools do not agree."""
        total = nist.total(self.sentences)
        print(
            f"{name}: {total.rate} ({total.sub} sub, {total.dele} del, {total.ins} ins)",
            file=sys.stderr,
        )
        _say(self.checked)


def _say(checked: dict[str, Any]) -> None:
    if checked.get("failed"):
        print(f"warning: {checked['tool']} failed: {checked['failed']}", file=sys.stderr)
    elif checked and not checked["agrees"]:
        names = ", ".join(checked["different_speakers"][:5])
        print(f"warning: {checked['tool']} counts otherwise for {names}", file=sys.stderr)


def _summary(scored: Sequence[nist.Sentence]) -> dict[str, Any]:
    """Counts of all and of every speaker, as wer.json has them."""
    speakers = {name: _counts(count) for name, count in nist.by_speaker(scored).items()}
    return _counts(nist.total(scored)) | {"speakers": speakers}


def _counts(counts: Counts) -> dict[str, Any]:
    return {
        "words": counts.words,
        "correct": counts.correct,
        "sub": counts.sub,
        "ins": counts.ins,
        "del": counts.dele,
        "errors": counts.errors,
        "wer": round(counts.wer, 3) if counts.words else None,
        "sentences": counts.sentences,
        "wrong_sentences": counts.wrong_sentences,
    }


def _readable(scored: Sequence[nist.Sentence]) -> str:
    """Alignments for people: reference above hypothesis, errors marked."""
    parts = []
    for sentence in scored:
        counts = sentence.counts
        columns = [
            (edit.ref or "*", edit.hyp or "*", "" if edit.kind == "C" else edit.kind)
            for edit in sentence.edits
        ]
        widths = [max(map(len, column)) for column in columns]
        rows = [
            " ".join(column[i].ljust(width) for column, width in zip(columns, widths, strict=True))
            for i in range(3)
        ]
        head = f"{sentence.name} C={counts.correct} S={counts.sub} D={counts.dele} I={counts.ins}"
        parts.append(f"{head}\nREF:  {rows[0]}\nHYP:  {rows[1]}\nEval: {rows[2].rstrip()}\n\n")
    return "".join(parts)
