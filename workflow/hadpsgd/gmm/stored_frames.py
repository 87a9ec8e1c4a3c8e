"""Frames of utterances where they lie in files: in the features' archives, or in a scratch file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd.errors import UserError

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
_GAP = 1 << 16
"""Bytes between two utterances that are read rather than jumped over."""


@dataclass(frozen=True, kw_only=True)
class StoredFrames:
    """float32 rows of each utterance, from a byte of a file; an index of some numbers each.

    file: which of `files` [utterances]; byte, rows: [utterances]; dim: columns.
    """

    files: Sequence[Path]
    file: Ints
    byte: Ints
    rows: Ints
    dim: int

    def chosen(self, numbers: NDArray[np.integer]) -> StoredFrames:
        """Those of these utterances alone [n]; nothing is copied."""
        return StoredFrames(
            files=self.files,
            file=self.file[numbers],
            byte=self.byte[numbers],
            rows=self.rows[numbers],
            dim=self.dim,
        )

    def read(self, first: int, last: int) -> Floats:
        """float32 [frames, dim] of the utterances from `first` to `last` (exclusive).

        Raises:
            UserError: a file has become shorter, or is gone.
        """
        result = np.empty((int(self.rows[first:last].sum()), self.dim), np.float32)
        row = 0
        for start, stop in self._stretches(first, last):
            begin = int(self.byte[start])
            content = self._bytes(start, int(self.byte[stop - 1] + self._sizes(stop - 1, stop)[0]))
            for utterance in range(start, stop):
                rows = int(self.rows[utterance])
                offset = int(self.byte[utterance]) - begin
                values = np.frombuffer(content, "<f4", rows * self.dim, offset)
                result[row : row + rows] = values.reshape(rows, self.dim)
                row += rows
        return result

    def _sizes(self, first: int, last: int) -> Ints:
        return 4 * self.dim * self.rows[first:last]

    def _stretches(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Utterances that lie one behind the other."""
        file, byte = self.file[first:last], self.byte[first:last]
        gaps = byte[1:] - (byte + self._sizes(first, last))[:-1]
        apart = (file[1:] != file[:-1]) | (gaps < 0) | (gaps > _GAP)
        starts = [first, *(first + 1 + np.flatnonzero(apart)).tolist()]
        if last > first:
            yield from zip(starts, [*starts[1:], last], strict=True)

    def _bytes(self, utterance: int, end: int) -> bytes:
        """From the begin of an utterance to a byte of its file."""
        path, begin = self.files[self.file[utterance]], int(self.byte[utterance])
        try:
            handle = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise UserError(f"cannot be read ({error.strerror})", where=path) from None
        try:
            content = os.pread(handle, end - begin, begin)
        finally:
            os.close(handle)
        if len(content) < end - begin:
            raise UserError("the file has become shorter", where=path, fix="Run this stage again")
        return content
