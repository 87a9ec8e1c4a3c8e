"""Linear discriminant analysis of spliced features (Kaldi's acc-lda and est-lda).

Classes are pdf-ids; the projection makes the covariance within classes the identity and sorts
directions by the variance between classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hadpsgd.errors import UserError
from hadpsgd.gmm.diag_gmm import Array
from hadpsgd.gmm.precisions import PdfPosteriors
from hadpsgd.gmm.statistics import Doubles

_SMOOTHING = 1e-3


@dataclass
class Sums:
    """counts: [classes]; first: [classes, dim]; second: [dim, dim], sum of x x' over all."""

    counts: Doubles
    first: Doubles
    second: Doubles

    @classmethod
    def zeros(cls, *, classes: int, dim: int) -> Sums:
        """No frames yet."""
        return cls(np.zeros(classes), np.zeros((classes, dim)), np.zeros((dim, dim)))

    def __iadd__(self, other: Sums) -> Sums:
        self.counts += other.counts
        self.first += other.first
        self.second += other.second
        return self


def sums_of(features: Array, pdfs: PdfPosteriors, classes: int) -> Sums:
    """Sums over frames, float32 [frames, dim], each counted for its pdfs as often as they weigh."""
    sums = Sums.zeros(classes=classes, dim=features.shape[1])
    if not len(pdfs.frames):
        return sums
    order = np.argsort(pdfs.pdfs, kind="stable")
    weights = pdfs.weights[order].astype(np.float64)
    seen = features[pdfs.frames[order]].astype(np.float64)
    weighted = seen * weights[:, None]
    present, starts = np.unique(pdfs.pdfs[order], return_index=True)
    sums.counts[present] = np.add.reduceat(weights, starts)
    sums.first[present] = np.add.reduceat(weighted, starts, axis=0)
    sums.second += weighted.T @ seen
    return sums


class Covariances(NamedTuple):
    """Of all frames about their mean: within the classes and between them, [dim, dim]."""

    within: Doubles
    between: Doubles


def covariances(sums: Sums) -> Covariances:
    """Covariances within and between the classes that have frames.

    Raises:
        UserError: there are no frames.
    """
    total = sums.counts.sum()
    if total <= 0:
        raise UserError("LDA: no frame has a class", fix="Is everything aligned to silence?")
    mean = sums.first.sum(axis=0) / total
    filled = sums.counts > 0
    roots = sums.first[filled] / np.sqrt(sums.counts[filled] * total)[:, None]
    within = sums.second / total - roots.T @ roots
    return Covariances(within, roots.T @ roots - np.outer(mean, mean))


@dataclass(frozen=True)
class Projection:
    """matrix: float32 [dim, spliced], the first rows of `full` [spliced, spliced] (full.mat).

    values: variance between classes along the rows of `full`, where that within is 1.
    """

    matrix: Array
    full: Array
    values: NDArray[np.float64]


def estimate(sums: Sums, dim: int) -> Projection:
    """The projection to `dim` dimensions. Rows have their largest weight positive.

    Raises:
        UserError: no frames, or fewer classes or features than dimensions.
    """
    within, between = covariances(sums)
    filled = int((sums.counts > 0).sum())
    if dim > len(within) or dim >= filled:
        raise UserError(
            f"LDA to {dim} dimensions out of {len(within)} features of {filled} classes",
            fix="Lower alignment.lda_mllt.dim, or splice more frames",
        )
    try:
        root = np.linalg.cholesky(within)
    except np.linalg.LinAlgError:  # as Kaldi does
        root = np.linalg.cholesky(
            within + np.eye(len(within)) * _SMOOTHING * np.trace(within) / len(within)
        )
    whiten = np.linalg.inv(root)
    values, vectors = np.linalg.eigh(whiten @ between @ whiten.T)
    full = vectors[:, ::-1].T @ whiten
    largest = np.abs(full).argmax(axis=1)
    full *= np.sign(full[np.arange(len(full)), largest])[:, None]
    single = full.astype(np.float32)
    return Projection(single[:dim], single, values[::-1])
