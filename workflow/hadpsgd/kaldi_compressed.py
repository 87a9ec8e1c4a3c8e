"""Kaldi's compressed matrices, formats CM, CM2 and CM3 (src/matrix/compressed-matrix.cc).

The kaldi_io package reads only CM, with a NumPy call that newer NumPy refuses.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

_HEADER = np.dtype([("low", "<f4"), ("range", "<f4"), ("rows", "<i4"), ("cols", "<i4")])
_LEVELS = np.arange(256, dtype=np.float32)[:, None]

Read = Callable[[int], bytes | bytearray]


def read_compressed(read: Read, token: str) -> NDArray[np.float32]:
    """Read a compressed matrix, float32 [rows, cols], from behind its token.

    `read(n)` gives exactly n bytes. `token` is CM (one byte an element, quartiles of every
    column), CM2 (two bytes, linear) or CM3 (one byte, linear).

    Raises:
        ValueError: another token, or a negative dimension.
    """
    header = np.frombuffer(read(_HEADER.itemsize), _HEADER)[0]
    rows, cols = int(header["rows"]), int(header["cols"])
    if token not in ("CM", "CM2", "CM3") or min(rows, cols) < 0:
        raise ValueError(f"compressed matrix '{token}' of {rows} x {cols}")
    low, span = header["low"], header["range"]
    if token == "CM":
        quartiles = np.frombuffer(read(cols * 8), "<u2").reshape(cols, 4)
        data = np.frombuffer(read(rows * cols), np.uint8).reshape(cols, rows)
        table = _table(low + span * np.float32(1.52590218966964e-05) * quartiles)
        decoded = np.take_along_axis(table, data.T, axis=0)
        return np.ascontiguousarray(decoded)
    dtype, steps = ("<u2", 65535) if token == "CM2" else ("u1", 255)
    data = np.frombuffer(read(rows * cols * np.dtype(dtype).itemsize), dtype).reshape(rows, cols)
    return low + np.float32(span * (1.0 / steps)) * data.astype(np.float32)


def _table(quartiles: NDArray[np.float32]) -> NDArray[np.float32]:
    """Value of every byte, [256, cols]: piecewise linear between a column's quartiles."""
    p0, p25, p75, p100 = quartiles.astype(np.float32).T
    lower = p0 + (p25 - p0) * _LEVELS * np.float32(1 / 64)
    middle = p25 + (p75 - p25) * (_LEVELS - 64) * np.float32(1 / 128)
    upper = p75 + (p100 - p75) * (_LEVELS - 192) * np.float32(1 / 63)
    return np.where(_LEVELS <= 64, lower, np.where(_LEVELS <= 192, middle, upper))
