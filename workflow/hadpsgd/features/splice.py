"""Neighbouring frames side by side (Kaldi's splice-feats)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd.errors import UserError

Matrix = NDArray[np.float32]


def splice(features: Matrix, left: int, right: int) -> Matrix:
    """[frames, dim] to [frames, (left + 1 + right) * dim], earliest frame first.

    The first and last frame are repeated beyond the ends.
    """
    frames, dim = features.shape
    if not frames:
        return np.zeros((0, (left + 1 + right) * dim), features.dtype)
    padded = np.pad(features, ((left, right), (0, 0)), mode="edge")
    width = (left + 1 + right) * dim
    # spliced rows are overlapping stretches of the padded matrix
    strides = (padded.strides[0], padded.strides[1])
    view = np.lib.stride_tricks.as_strided(padded, (frames, width), strides, writeable=False)
    return np.ascontiguousarray(view)


def read_splice_opts(path: Path) -> tuple[int, int]:
    """Left and right context out of Kaldi's splice_opts; 4 and 4 (Kaldi's default) if not given.

    Raises:
        UserError: no such file, or an option that splice-feats does not have.
    """
    values = {"--left-context": 4, "--right-context": 4}
    try:
        words = path.read_text(encoding="utf-8").split()
    except FileNotFoundError:
        raise UserError("no such file", where=path) from None
    for word in words:
        name, _, value = word.partition("=")
        if name not in values or not value.isdigit():
            raise UserError(f"'{word}' is not an option of splice-feats", where=path)
        values[name] = int(value)
    return values["--left-context"], values["--right-context"]
