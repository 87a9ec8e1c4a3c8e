"""PCA of spliced features, where no aligned model is at hand to estimate LDA+MLLT."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hadpsgd.features.frontend import Inputs

Matrix = NDArray[np.float32]


def principal_components(inputs: Inputs, dim: int) -> Matrix:
    """PCA of spliced features, float32 [dim, spliced + 1]: centred, decorrelated, unit variance.

    Kaldi's est-pca --normalize-variance --normalize-mean.
    """
    frames, total, scatter = 0, np.zeros(0), np.zeros((0, 0))
    for _, features in inputs:
        double = features.astype(np.float64)
        if not frames:
            total, scatter = np.zeros(double.shape[1]), np.zeros((double.shape[1],) * 2)
        frames += len(double)
        total += double.sum(axis=0)
        scatter += double.T @ double
    mean = total / frames
    values, vectors = np.linalg.eigh(scatter / frames - np.outer(mean, mean))
    order = np.argsort(values)[::-1][:dim]
    rows = vectors[:, order].T / np.sqrt(np.maximum(values[order], 1e-10))[:, None]
    rows *= np.where(rows.sum(axis=1) < 0, -1.0, 1.0)[:, None]  # one sign on every machine
    return np.concatenate([rows, -(rows @ mean)[:, None]], axis=1).astype(np.float32)
