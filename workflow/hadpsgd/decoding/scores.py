"""Scores of an utterance: an array, or what makes them little by little where that would be large.

An unsegmented side of ten minutes has 60,000 frames; of 32,000 pdfs that would be 7.7 GB.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hadpsgd.errors import UserError

Matrix = NDArray[np.float32]

WHOLE = 1 << 23
"""Bytes of scores that are made at once: an utterance that has no more is an array."""


class LongScores:
    """Log-likelihoods, [frames, pdfs], of which a chunk is there at a time.

    Args:
        frames: of the utterance.
        pdfs: columns.
        make: the scores from one frame to before another.
        held: bytes of what they are made of.
    """

    def __init__(
        self, *, frames: int, pdfs: int, make: Callable[[int, int], Matrix], held: int = 0
    ) -> None:
        self.shape, self.ndim = (frames, pdfs), 2
        self._make, self._held = make, held
        self.rows = max(1, WHOLE // (4 * pdfs))
        """Frames of a chunk."""
        self._begin, self._chunk = 0, np.zeros((0, pdfs), np.float32)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        """Bytes that are held at a time."""
        return self._held + 4 * self.rows * self.shape[1]

    def __getitem__(self, frames: slice) -> Matrix:
        """Scores of some frames in a row; quick where they follow those asked for before.

        Raises:
            UserError: they are not finite.
        """
        begin, end, _ = frames.indices(len(self))
        parts = []
        while begin < end:
            if not self._begin <= begin < self._begin + len(self._chunk):
                self._load(begin)
            upto = min(end, self._begin + len(self._chunk))
            parts.append(self._chunk[begin - self._begin : upto - self._begin])
            begin = upto
        return parts[0] if len(parts) == 1 else np.concatenate([self._chunk[:0], *parts])

    def columns(self, pdfs: NDArray[np.integer]) -> Matrix:
        """Scores of some pdfs at all frames: float32 [frames, pdfs]."""
        found = np.empty((len(self), len(pdfs)), np.float32)
        for at in range(0, len(self), self.rows):
            found[at : at + self.rows] = self[at : at + self.rows][:, pdfs]
        return found

    def _load(self, begin: int) -> None:
        self._begin = begin
        self._chunk = self._make(begin, min(begin + self.rows, len(self)))
        check_finite(self._chunk)


Scores = Matrix | LongScores


def scores_of(
    *, frames: int, pdfs: int, make: Callable[[int, int], Matrix], held: int = 0
) -> Scores:
    """Scores of an utterance, at once where they are few. Args: as those of LongScores."""
    if 4 * frames * pdfs <= WHOLE:
        return make(0, frames)
    return LongScores(frames=frames, pdfs=pdfs, make=make, held=held)


def check_finite(scores: Matrix) -> None:
    """Refuse scores that mean nothing.

    Raises:
        UserError: NaN or infinite ones.
    """
    if not np.isfinite(scores).all():
        raise UserError("scores that are not finite (NaN or infinite)", fix="Train again")
