"""Sentences as the script of a page lists them (sentences.js), with what is to be heard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hadpsgd.reports.stretches import Stretch

_LEAD = 0.04  # seconds before and after a word: a cut consonant is not understood

Cell = list[Any]
"""Of a word: text, kind of edit (empty: none), and where it is known: begin and end in the clip in
seconds, how they are known, confidence. Nothing after the text where nothing is known."""


@dataclass(frozen=True, kw_only=True)
class Clip:
    """The audio of a sentence: its number on the page, the second at which it begins."""

    number: int
    begin: float

    def play(self, stretch: Stretch | None) -> str:
        """What a button plays: `clip,from,to`; empty where it is not known."""
        if stretch is None:
            return ""
        begin, end = self.within(stretch)
        return f"{self.number},{begin - _LEAD:.2f},{end + _LEAD:.2f}"

    def within(self, stretch: Stretch) -> tuple[float, float]:
        """Seconds of the clip."""
        return stretch.begin - self.begin, stretch.end - self.begin


def cell(text: str | None, *, kind: str, stretch: Stretch | None, begin: float) -> Cell:
    """A word of a sentence whose clip begins at that second of the recording."""
    found: Cell = [text or "", kind if text and kind != "C" else ""]
    if text and stretch:
        found += [round(stretch.begin - begin, 2), round(stretch.end - begin, 2), stretch.source]
        found += [] if stretch.confidence is None else [round(stretch.confidence, 2)]
    return found if len(found) > 2 or found[1] else found[:1]


def row(
    *,
    name: str,
    clip: int | None,
    begin: float,
    tags: Sequence[str],
    columns: Sequence[Sequence[Cell]],
    fields: dict[str, Any],
) -> dict[str, Any]:
    """A sentence.

    Args:
        name: its name.
        clip: number of its audio on the page; None without.
        begin: second of the recording where the sentence begins.
        tags: what is told of it.
        columns: of its alignment, each of cells, one a line.
        fields: what the page filters and sorts by.
    """
    return {
        "name": name,
        "clip": clip,
        "begin": round(begin, 2),
        "tags": [tag for tag in tags if tag],
        "columns": columns,
        **fields,
    }
