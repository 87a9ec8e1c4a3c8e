"""Scored sentences as a file: one JSON line each, for comparisons and error analysis."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from hadpsgd.corpus.stm import Segment
from hadpsgd.errors import UserError
from hadpsgd.scoring.align import Edit
from hadpsgd.scoring.formats import TimedWord
from hadpsgd.scoring.nist import Sentence

FILE = "sentences.jsonl"
T = TypeVar("T", Edit, Segment, TimedWord)


def write(path: Path, sentences: Iterable[Sentence]) -> None:
    """Write sentences (into a folder that is renamed as a whole)."""
    with path.open("w", encoding="utf-8") as stream:
        stream.writelines(json.dumps(_row(s), ensure_ascii=False) + "\n" for s in sentences)


def _row(sentence: Sentence) -> dict[str, Any]:
    edits = [[e.kind, e.ref, e.hyp, e.ref_arc, e.hyp_arc] for e in sentence.edits]
    row: dict[str, Any] = {"name": sentence.name, "speaker": sentence.speaker, "edits": edits}
    if sentence.segment:
        s = sentence.segment
        row["segment"] = [s.file, s.channel, s.speaker, s.begin, s.end, s.text, s.label]
    if sentence.words:
        row["words"] = [
            [w.file, w.channel, w.begin, w.duration, w.word, w.confidence] for w in sentence.words
        ]
    return row


def read(path: Path) -> list[Sentence]:
    """Read sentences of a scoring folder, or of the file itself.

    Raises:
        UserError: the file is missing, empty or damaged; names the line. Of a run's folder, which
            has one for each set, names these.
    """
    path = path / FILE if path.is_dir() else path
    sentences: list[Sentence] = []
    names: set[str] = set()
    try:
        # of bytes: that of a string also splits at characters that may stand inside a line
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        sets = sorted(str(file.parent) for file in path.parent.glob(f"*/{FILE}"))
        below = f"Give the folder of one set: {' or '.join(sets)}"
        fix = below if sets else "`hadpsgd score` writes it"
        raise UserError("missing", where=path, fix=fix) from None
    for number, line in enumerate(lines, 1):
        try:
            sentence = _sentence(json.loads(line.decode("utf-8")))
            if sentence.name in names:
                raise ValueError(f"{sentence.name} a second time")
            names.add(sentence.name)
            sentences.append(sentence)
        except (ValueError, KeyError, TypeError) as error:
            fix = "Score again"
            raise UserError(f"damaged ({error})", where=f"{path}:{number}", fix=fix) from None
    if not sentences:
        raise UserError("no sentences", where=path, fix="Score again")
    return sentences


def _of(kind: type[T], values: Sequence[Any]) -> T:
    """A dataclass of its fields' values in their order, as `_row` writes them."""
    names = [field.name for field in fields(kind)][: len(values)]
    return kind(**dict(zip(names, values, strict=True)))


def _sentence(row: dict[str, Any]) -> Sentence:
    edits = [_of(Edit, edit) for edit in row["edits"]]
    if strange := {edit.kind for edit in edits}.difference("CSDI"):
        raise ValueError(f"no kind of edit: {strange.pop()}")
    if not (isinstance(row["name"], str) and isinstance(row["speaker"], str)):
        raise TypeError("name and speaker are no texts")
    return Sentence(
        name=row["name"],
        speaker=row["speaker"],
        edits=edits,
        segment=_of(Segment, row["segment"]) if "segment" in row else None,
        words=tuple(_of(TimedWord, word) for word in row.get("words", ())),
    )
