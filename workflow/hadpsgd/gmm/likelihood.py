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
    by_component = scores.T
    result = np.empty((len(starts), len(features)), np.float32)
    ends = np.append(starts[1:], len(by_component))
    for row, begin, end in zip(result, starts.tolist(), ends.tolist(), strict=True):
        part = by_component[begin:end]
        if end == begin + 1:
            row[:] = part[0]
            continue
        best = part.max(axis=0)
        part -= best
        np.exp(part, out=part)
        np.log(part.sum(axis=0), out=row)
        row += best
    return result.T


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
    # Gaussians first: sums over those of a pdf then run along whole rows of frames
    scores = mixtures.parameters[rows] @ doubled.T
    scores += mixtures.gconsts[rows][:, None]
    return scores.T, starts
