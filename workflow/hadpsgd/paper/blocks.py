"""What the page is made of: parts with sentences, tables and pictures, and their sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Kind = Literal["measured", "virtual", "modelled", "paper"]
"""Real processes; real gradients in simulated time; a model of time; what a paper says."""
NOTHING = "-"


@dataclass(frozen=True, kw_only=True)
class Value:
    """A cell of a table."""

    text: str
    kind: Kind | None = None
    note: str = ""
    """Its interval, or how many runs it is of."""
    runs: tuple[str, ...] = ()
    """Ids of the MLflow runs that it is made from."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Headings and rows; the first `left` columns are names."""

    headings: Sequence[str]
    rows: Sequence[Sequence[Value]]
    left: int = 1


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A picture, its file's name and what it is drawn from."""

    name: str
    figure: Figure
    caption: str
    runs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the page."""

    title: str
    claim: str
    """What the papers say."""
    found: Sequence[str] = ()
    """What is found here, in sentences made from the numbers."""
    tables: Sequence[Table] = field(default_factory=list)
    pictures: Sequence[Picture] = field(default_factory=list)
    notes: Sequence[str] = ()


def name(text: object) -> Value:
    """A cell that is a name or a setting."""
    return Value(text=str(text))


def paper(text: str) -> Value:
    """What a paper says, or a dash where none that was read says it."""
    return Value(text=text, kind="paper") if text else Value(text=NOTHING)
