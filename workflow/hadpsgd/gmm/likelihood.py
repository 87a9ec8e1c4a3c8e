"""Log-likelihoods of diagonal mixtures, many frames at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hadpsgd.gmm.diag_gmm import Array, Mixtures


def log_likelihoods(
    mixtures: Mixtures, features: Array, pdfs: NDArray[np.integer] | None = None
) -> Array:
    """Log-likelihood of every pdf, or of those in `pdfs`: float32 [frames, pdfs].

    features: float32 [frames, dim].
    """
    scores, starts = component_scores(mixtures, features, pdfs)
    best = np.maximum.reduceat(scores, starts, axis=1)
    sizes = np.diff(np.append(starts, scores.shape[1]))
    scores -= np.repeat(best, sizes, axis=1)
    np.exp(scores, out=scores)
    total = np.add.reduceat(scores, starts, axis=1)
    return best + np.log(total, out=total)


def component_scores(
    mixtures: Mixtures, features: Array, pdfs: NDArray[np.integer] | None = None
) -> tuple[Array, NDArray[np.int64]]:
    """Log of weight times density of Gaussians: float32 [frames, Gaussians]; where pdfs start."""
    if pdfs is None:
        rows: slice | NDArray[np.int64] = slice(None)
        starts = mixtures.offsets[:-1]
    else:
        sizes = np.diff(mixtures.offsets)[pdfs]
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        rows = np.repeat(mixtures.offsets[pdfs] - starts, sizes) + np.arange(sizes.sum())
    doubled = np.concatenate([features, features * features], axis=1)
    scores = doubled @ mixtures.parameters[rows].T
    scores += mixtures.gconsts[rows]
    return scores, starts
