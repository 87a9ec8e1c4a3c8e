"""Many symmetric matrices at once: lower triangles packed or whole; whether any is singular."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_DEPENDENT = 1e-7
"""Eigenvalue of correlations below which features depend on one another; share of the largest
variance below which they have none."""


def pack(matrices: Array) -> Array:
    """Lower triangles, row by row, of matrices [n, size, size]: [n, size (size + 1) / 2]."""
    rows, columns = np.tril_indices(matrices.shape[-1])
    return np.ascontiguousarray(matrices[:, rows, columns])


def unpack(packed: NDArray[np.floating], size: int) -> Array:
    """Matrices [n, size, size] of packed lower triangles; zero above the diagonal."""
    lower = np.zeros((len(packed), size, size))
    start = 0
    for row in range(size):
        lower[:, row, : row + 1] = packed[:, start : start + row + 1]
        start += row + 1
    return lower


def symmetric(lower: Array) -> Array:
    """Whole symmetric matrices [n, size, size] of lower triangles."""
    mirrored = lower + lower.transpose(0, 2, 1)
    diagonal = np.arange(lower.shape[-1])
    mirrored[:, diagonal, diagonal] /= 2
    return mirrored


def singular(matrices: Array) -> NDArray[np.bool_]:
    """Whether covariances [..., n, n] have rows that depend on others or have no variance."""
    variances = np.diagonal(matrices, axis1=-2, axis2=-1)
    flat = variances <= _DEPENDENT * variances.max(axis=-1, keepdims=True)
    scale = 1 / np.sqrt(np.where(flat, np.inf, variances))
    correlations = matrices * scale[..., :, None] * scale[..., None, :]
    return np.asarray(np.linalg.eigvalsh(correlations)[..., 0] < _DEPENDENT)
