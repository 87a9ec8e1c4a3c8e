"""MLLT, a global semi-tied covariance transform (Kaldi's gmm-acc-mllt and est-mllt).

M. Gales, Semi-tied covariance matrices for hidden Markov models, IEEE Transactions on Speech and
Audio Processing 7, 1999, eq. 22: rows are updated one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hadpsgd.errors import UserError
from hadpsgd.features.matrices import pack, singular, symmetric, unpack
from hadpsgd.gmm import diag_gmm
from hadpsgd.gmm.diag_gmm import Array, Mixtures
from hadpsgd.gmm.precisions import PdfPosteriors, weighted_scatter
from hadpsgd.gmm.statistics import Doubles, frames_by_pdf, posteriors

ITERATIONS = 200


@dataclass
class Sums:
    """Sums over frames x with posteriors of Gaussians.

    occupancy: [Gaussians]; first: [Gaussians, dim], sum of x; scatter: for every dimension d the
    packed lower triangle of the sum of x x' / variance_d, [dim, dim (dim + 1) / 2].
    """

    occupancy: Doubles
    first: Doubles
    scatter: Doubles

    @classmethod
    def zeros(cls, *, gaussians: int, dim: int) -> Sums:
        """No frames yet."""
        return cls(np.zeros(gaussians), np.zeros((gaussians, dim)),
                   np.zeros((dim, dim * (dim + 1) // 2)))  # fmt: skip

    def __iadd__(self, other: Sums) -> Sums:
        self.occupancy += other.occupancy
        self.first += other.first
        self.scatter += other.scatter
        return self


def sums_of(
    mixtures: Mixtures, features: Array, pdfs: PdfPosteriors, into: Sums | None = None
) -> Sums:
    """Sums over frames, float32 [frames, dim], added to `into`."""
    sums = into or Sums.zeros(gaussians=len(mixtures.weights), dim=mixtures.dim)
    precisions = np.zeros((len(features), mixtures.dim), np.float32)
    for pdf, entries in frames_by_pdf(pdfs.pdfs):
        frames = pdfs.frames[entries]
        shares, _ = posteriors(mixtures, features[frames], pdf)
        shares *= pdfs.weights[entries, None]
        rows = slice(mixtures.offsets[pdf], mixtures.offsets[pdf + 1])
        sums.occupancy[rows] += shares.sum(axis=0, dtype=np.float64)
        sums.first[rows] += shares.T @ features[frames]
        precisions[frames] += shares @ mixtures.inv_vars[rows]
    used = precisions[:, 0] > 0
    sums.scatter += weighted_scatter(features[used], precisions[used])
    return sums


def spread(mixtures: Mixtures, sums: Sums) -> Doubles:
    """G_d = sum of (x - mean)(x - mean)' / variance_d, about the means: [dim, dim, dim]."""
    means, inverse = mixtures.means.astype(np.float64), mixtures.inv_vars.astype(np.float64)
    # of the square only mean x' and mean mean' are left to add, Gaussian by Gaussian
    cross = (sums.occupancy[:, None] * means / 2 - sums.first)[:, :, None] * means[:, None, :]
    cross += cross.transpose(0, 2, 1).copy()
    packed = sums.scatter + inverse.T @ pack(cross)
    return symmetric(unpack(packed, mixtures.dim))


class Estimated(NamedTuple):
    """The transform [dim, dim], and its gain in nats a frame over `frames` frames."""

    matrix: Doubles
    gain: float
    frames: float


def auxiliary(matrix: Doubles, quadratic: Doubles, frames: float) -> float:
    """beta log |det M| - sum_d m_d' G_d m_d / 2."""
    bent = (quadratic @ matrix[:, :, None])[..., 0]
    return float(frames * np.linalg.slogdet(matrix)[1] - 0.5 * (bent * matrix).sum())


def estimate(mixtures: Mixtures, sums: Sums, iterations: int = ITERATIONS) -> Estimated:
    """The transform of highest auxiliary function, from the identity.

    Raises:
        UserError: no frames, or too few for the dimension.
    """
    dim, frames = mixtures.dim, float(sums.occupancy.sum())
    if frames < 2 * dim:
        raise UserError(f"MLLT: {frames:.0f} frames for {dim} dimensions", fix="Use more data")
    quadratic = spread(mixtures, sums)
    if singular(quadratic).any():
        raise UserError("MLLT: the features are linearly dependent", fix="Are there enough frames?")
    inverse = np.linalg.inv(quadratic)
    matrix = np.eye(dim)
    for _ in range(iterations):
        cofactors = np.linalg.inv(matrix)
        for d in range(dim):
            c = cofactors[:, d].copy()
            reach = inverse[d] @ c
            row = reach * np.sqrt(frames / (c @ reach))
            # the inverse after a change of row d (Sherman and Morrison)
            moved = ((row - matrix[d]) @ cofactors) / (row @ c)
            cofactors -= np.outer(c, moved)
            matrix[d] = row
    gain = auxiliary(matrix, quadratic, frames) - auxiliary(np.eye(dim), quadratic, frames)
    return Estimated(matrix=matrix, gain=gain / frames, frames=frames)


def transform_means(mixtures: Mixtures, matrix: Doubles) -> Mixtures:
    """Mixtures whose means are multiplied by [dim, dim], or [dim, dim + 1] with an offset.

    Variances and weights stay (Kaldi's gmm-transform-means).
    """
    dim = mixtures.dim
    means = mixtures.means @ matrix[:, :dim].T
    if matrix.shape[1] > dim:
        means = means + matrix[:, dim]
    sizes = np.diff(mixtures.offsets)
    return diag_gmm.make(sizes, mixtures.weights, means, mixtures.variances)
