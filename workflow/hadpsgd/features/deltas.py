"""Deltas as Kaldi's add-deltas (feat/feature-functions.cc), over all frames at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]


def delta_filters(*, order: int, window: int) -> list[NDArray[np.float32]]:
    """Filter of every order, each of 2 * order * window + 1 taps; the first is the identity."""
    taps = np.arange(-window, window + 1, dtype=np.float64)
    taps /= np.square(taps).sum()
    filters = [np.ones(1)]
    for _ in range(order):
        filters.append(np.convolve(filters[-1], taps))
    return [taps.astype(np.float32) for taps in filters]


def add_deltas(features: Matrix, *, order: int = 2, window: int = 2) -> Matrix:
    """Append deltas up to `order`: [frames, dim] to [frames, (order + 1) * dim].

    The first and last frame are repeated beyond the ends. Higher orders filter the static
    features with the convolved filter, as Kaldi does (not the clamped lower deltas).
    """
    frames, dim = features.shape
    if not frames:
        return np.zeros((0, (order + 1) * dim), np.float32)
    reach = order * window
    padded = np.pad(features, ((reach, reach), (0, 0)), mode="edge")
    out = np.zeros((frames, order + 1, dim), np.float32)
    term = np.empty((frames, dim), np.float32)
    for number, taps in enumerate(delta_filters(order=order, window=window)):
        first = reach - number * window
        for offset, tap in enumerate(taps, first):
            if tap:
                np.multiply(padded[offset : offset + frames], tap, out=term)
                out[:, number] += term
    return out.reshape(frames, (order + 1) * dim)
