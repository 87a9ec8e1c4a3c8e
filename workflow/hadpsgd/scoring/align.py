"""Alignment of two word networks with NIST's costs, ties broken as sclite breaks them.

An optional word that is left out counts as correct.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hadpsgd.scoring import wavefront
from hadpsgd.scoring.costs import gap_cost, pair_cost, same
from hadpsgd.scoring.network import Network

Kind = Literal["C", "S", "D", "I"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One column of an alignment: correct, substituted, deleted or inserted.

    ref, hyp: the words; None on the side that has nothing. ref_arc, hyp_arc: their arcs, or 0.
    """

    kind: Kind
    ref: str | None
    hyp: str | None
    ref_arc: int = 0
    hyp_arc: int = 0


def align(ref: Network, hyp: Network, *, fragments: bool = False) -> list[Edit]:
    """The best alignment of a reference and a hypothesis network.

    Where costs tie, a substitution or match is preferred, then an insertion; a deletion must be
    strictly better than an insertion (SCTK's net_dp.c).
    """
    large = len(ref.words) * len(hyp.words) > _LARGE
    costs = wavefront.fill(ref, hyp, fragments) if large else _fill(ref, hyp, fragments)
    cell = min(
        ((a, b) for a in ref.ends for b in hyp.ends), key=lambda cell: costs[cell[0]][cell[1]]
    )
    edits: list[Edit] = []
    while cell != (0, 0):
        (a, b), cell = cell, _before(costs, ref, hyp, cell, fragments)
        r, h = ref.words[a], hyp.words[b]
        if cell[0] == a:
            if not h.is_null:
                edits.append(
                    Edit(
                        kind="C" if h.optional else "I", ref=None, hyp=h.text, ref_arc=0, hyp_arc=b
                    )
                )
        elif cell[1] == b:
            if not r.is_null:
                edits.append(
                    Edit(
                        kind="C" if r.optional else "D", ref=r.text, hyp=None, ref_arc=a, hyp_arc=0
                    )
                )
        elif not (r.is_null and h.is_null):
            edits.append(
                Edit(
                    kind="C" if same(r, h, fragments) else "S",
                    ref=r.text,
                    hyp=h.text,
                    ref_arc=a,
                    hyp_arc=b,
                )
            )
    return edits[::-1]


_LARGE = 1 << 14  # cells, from which arrays are faster
_Costs = Sequence[Sequence[float]] | NDArray[np.floating[Any]]
_INFINITE = float("inf")


def _fill(ref: Network, hyp: Network, fragments: bool) -> list[list[float]]:
    """Costs of aligning all up to arc a with all up to arc b."""
    rows, columns = len(ref.words), len(hyp.words)
    costs = [[0.0] * columns for _ in range(rows)]
    hyp_gap = [0.0] + [gap_cost(word) for word in hyp.words[1:]]
    matches = lru_cache(maxsize=None)(lambda a, b: pair_cost(a, b, fragments))
    for b in range(1, columns):
        costs[0][b] = min(costs[0][i] for i in hyp.before[b]) + hyp_gap[b]
    for a in range(1, rows):
        row, word, before, gap = costs[a], ref.words[a], ref.before[a], gap_cost(ref.words[a])
        row[0] = min(costs[i][0] for i in before) + gap
        for b in range(1, columns):
            others = hyp.before[b]
            if len(before) == len(others) == 1:
                above = costs[before[0]]
                insertion, deletion, pair = row[others[0]], above[b], above[others[0]]
            else:
                insertion = min(row[j] for j in others)
                deletion = min(costs[i][b] for i in before)
                pair = min(costs[i][j] for i in before for j in others)
            insertion, deletion = insertion + hyp_gap[b], deletion + gap
            pair += matches(word, hyp.words[b])
            if deletion < insertion:
                insertion = deletion
            row[b] = pair if pair < insertion else insertion
    return costs


def _before(
    costs: _Costs, ref: Network, hyp: Network, cell: tuple[int, int], fragments: bool
) -> tuple[int, int]:
    """The cell that the best way to a cell comes from; of equals the first."""
    a, b = cell
    rows, columns = ref.before[a], hyp.before[b]
    insertion = deletion = pair = _INFINITE
    left = above = diagonal = cell
    if columns:
        left = a, min(columns, key=lambda j: costs[a][j])
        insertion = costs[a][left[1]] + gap_cost(hyp.words[b])
    if rows:
        above = min(rows, key=lambda i: costs[i][b]), b
        deletion = costs[above[0]][b] + gap_cost(ref.words[a])
    if rows and columns:
        i, j = diagonal = min(
            ((i, j) for i in rows for j in columns), key=lambda cell: costs[cell[0]][cell[1]]
        )
        pair = costs[i][j] + pair_cost(ref.words[a], hyp.words[b], fragments)
    if pair <= deletion and pair <= insertion:
        return diagonal
    return above if deletion < insertion else left


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Words and errors, as sclite counts them; they add up."""

    correct: int = 0
    sub: int = 0
    dele: int = 0
    ins: int = 0
    sentences: int = 0
    wrong_sentences: int = 0

    @classmethod
    def of(cls, edits: list[Edit]) -> Counts:
        """Counts of one sentence."""
        kinds = [edit.kind for edit in edits]
        errors = len(kinds) - kinds.count("C")
        correct, sub, dele, ins = (kinds.count(kind) for kind in ("C", "S", "D", "I"))
        return cls(
            correct=correct,
            sub=sub,
            dele=dele,
            ins=ins,
            sentences=1,
            wrong_sentences=int(errors > 0),
        )

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            correct=self.correct + other.correct,
            sub=self.sub + other.sub,
            dele=self.dele + other.dele,
            ins=self.ins + other.ins,
            sentences=self.sentences + other.sentences,
            wrong_sentences=self.wrong_sentences + other.wrong_sentences,
        )

    @property
    def words(self) -> int:
        """Words of the reference."""
        return self.correct + self.sub + self.dele

    @property
    def errors(self) -> int:
        """Substitutions, deletions and insertions."""
        return self.sub + self.dele + self.ins

    @property
    def rate(self) -> str:
        """The word error rate as it is told."""
        return f"{self.wer:.2f} % of {self.words} words" if self.words else "no words were said"

    @property
    def wer(self) -> float:
        """Word error rate in percent; nan without words."""
        return 100.0 * self.errors / self.words if self.words else float("nan")
