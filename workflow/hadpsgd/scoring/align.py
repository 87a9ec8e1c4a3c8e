"""Alignment of two word networks with NIST's costs, ties broken as sclite breaks them.

Costs (SCTK's word.c): substitution 4, insertion and deletion 3, of an optional word 2, of nothing
(@) 0.001, nothing for nothing 1. An optional word that is left out counts as correct.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from hadpsgd.scoring.network import Network, Word

Kind = Literal["C", "S", "D", "I"]

SUBSTITUTION, GAP, OPTIONAL_GAP, NULL_PAIR = 4.0, 3.0, 2.0, 1.0
# sclite adds in single precision, where some sums with it tie that do not in double; the other
# sums are whole numbers, exact in both
NULL_GAP: float = np.float32(0.001)  # type: ignore[assignment]


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


def same(a: Word, b: Word, fragments: bool) -> bool:
    """Whether two words match; with `fragments`, th- matches all words that begin so."""
    if a.text == b.text:
        return True
    if not fragments:
        return False
    for one, other in ((a.text, b.text), (b.text, a.text)):
        if len(one) > 1 and one.startswith("-"):
            return other.endswith(one[1:])
        if len(one) > 1 and one.endswith("-"):
            return other.startswith(one[:-1])
    return False


def _gap(word: Word) -> float:
    if word.is_null:
        return NULL_GAP
    return OPTIONAL_GAP if word.optional else GAP


def _pair(a: Word, b: Word, fragments: bool) -> float:
    if a.is_null and b.is_null:
        return NULL_PAIR
    return 0.0 if same(a, b, fragments) else SUBSTITUTION


def align(ref: Network, hyp: Network, *, fragments: bool = False) -> list[Edit]:
    """The best alignment of a reference and a hypothesis network.

    Where costs tie, a substitution or match is preferred, then an insertion; a deletion must be
    strictly better than an insertion (SCTK's net_dp.c).
    """
    costs, back = _fill(ref, hyp, fragments)
    best = min(
        ((a, b) for a in ref.ends for b in hyp.ends), key=lambda cell: costs[cell[0]][cell[1]]
    )
    return _trace(ref, hyp, back, best, fragments)


_Back = list[list[tuple[int, int]]]


def _fill(ref: Network, hyp: Network, fragments: bool) -> tuple[list[list[float]], _Back]:
    """Cost of aligning all up to arc a with all up to arc b, and the cell before."""
    rows, columns = len(ref.words), len(hyp.words)
    costs = [[0.0] * columns for _ in range(rows)]
    back: _Back = [[(-1, -1)] * columns for _ in range(rows)]
    hyp_gap = [0.0] + [_gap(word) for word in hyp.words[1:]]
    matches = lru_cache(maxsize=None)(lambda a, b: _pair(a, b, fragments))
    for b in range(1, columns):
        p = min(hyp.before[b], key=costs[0].__getitem__)
        costs[0][b], back[0][b] = costs[0][p] + hyp_gap[b], (0, p)
    for a in range(1, rows):
        row, word, before, gap = costs[a], ref.words[a], ref.before[a], _gap(ref.words[a])
        q = min(before, key=lambda i: costs[i][0])
        row[0], back[a][0] = costs[q][0] + gap, (q, 0)
        for b in range(1, columns):
            p = _first_least(row, hyp.before[b])
            insertion = row[p] + hyp_gap[b]
            q = before[0]
            for i in before[1:]:
                if costs[i][b] < costs[q][b]:
                    q = i
            deletion = costs[q][b] + gap
            i, j = _least_pair(costs, before, hyp.before[b])
            pair = costs[i][j] + matches(word, hyp.words[b])
            if pair <= deletion and pair <= insertion:
                row[b], back[a][b] = pair, (i, j)
            elif deletion < insertion:
                row[b], back[a][b] = deletion, (q, b)
            else:
                row[b], back[a][b] = insertion, (a, p)
    return costs, back


def _first_least(row: list[float], candidates: list[int]) -> int:
    best = candidates[0]
    for i in candidates[1:]:
        if row[i] < row[best]:
            best = i
    return best


def _least_pair(costs: list[list[float]], rows: list[int], columns: list[int]) -> tuple[int, int]:
    best = rows[0], columns[0]
    if len(rows) == len(columns) == 1:
        return best
    least = costs[best[0]][best[1]]
    for i in rows:
        for j in columns:
            if costs[i][j] < least:
                least, best = costs[i][j], (i, j)
    return best


def _trace(
    ref: Network, hyp: Network, back: _Back, cell: tuple[int, int], fragments: bool
) -> list[Edit]:
    edits: list[Edit] = []
    while cell != (0, 0):
        (a, b), cell = cell, back[cell[0]][cell[1]]
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
    def wer(self) -> float:
        """Word error rate in percent; nan without words."""
        return 100.0 * self.errors / self.words if self.words else float("nan")
