"""Training of the extractor: expectation maximisation as Kaldi's ivector-extractor-acc-stats, -est.

Equations are those of Kaldi's ivector/ivector-extractor.cc; all utterances of a batch are worked
on together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hadpsgd.errors import UserError
from hadpsgd.features.gaussians import LOG_2PI
from hadpsgd.features.ivector.extractor import Extractor
from hadpsgd.features.ivector.statistics import Spool
from hadpsgd.features.ivector.ubm import DiagGmm
from hadpsgd.features.matrices import pack, singular, symmetric, unpack

Array = NDArray[np.float64]

INITIAL_OFFSET = 100.0
MIN_COUNT = 100.0
"""Frames that a Gaussian must be seen for (Kaldi's --gaussian-min-count)."""
VARIANCE_FLOOR = 0.1
"""Floor of covariances, relative to their average (Kaldi's --variance-floor-factor)."""
MAX_CONDITION = 1e4
"""Condition number from which on projections are solved with floored eigenvalues."""
_BATCH = 64


def initial(model: DiagGmm, *, dim: int, seed: int) -> Extractor:
    """Means of the UBM in the first column of M_i, noise in the others, its variances."""
    random = np.random.default_rng([seed, 2])
    projections = random.standard_normal((len(model), model.dim, dim))
    projections[:, :, 0] = model.means / INITIAL_OFFSET
    inverse = model.inv_vars.astype(np.float64)[:, :, None] * np.eye(model.dim)
    return Extractor(model.weights.astype(np.float64), projections, inverse, INITIAL_OFFSET)


@dataclass
class Expectations:
    """Sums over utterances under the present extractor (names of Kaldi's and of its notes).

    gamma: [G]; Y: [G, D, R], data times i-vector; R: [G, R, R], i-vector scatter weighted by
    counts; count, total and scatter of the i-vectors; auxf: the auxiliary function, summed.
    """

    gamma: Array
    Y: Array
    R: Array
    utterances: int
    ivector_sum: Array
    ivector_scatter: Array
    auxf: float


def expect(model: Extractor, spool: Spool, scatter: Array) -> Expectations:
    """E-step over all utterances; `scatter` [G, D, D] is that of all frames."""
    gaussians, dim, size = model.projections.shape
    sums = Expectations(
        np.zeros(gaussians),
        np.zeros((gaussians, dim, size)),
        np.zeros((gaussians, size * (size + 1) // 2)),
        0,
        np.zeros(size),
        np.zeros((size, size)),
        0.0,
    )
    for counts, data in spool.batches(_BATCH):
        _expect_batch(model, counts, data, sums)
    sums.R = symmetric(unpack(sums.R, size))
    sums.auxf += _constant_auxf(model, sums.gamma, scatter)
    return sums


def _expect_batch(model: Extractor, counts: Array, data: Array, sums: Expectations) -> None:
    size = model.dim
    linear = model.linear_terms(data)
    quadratic = symmetric(model.quadratic_terms(counts))
    precision = quadratic + np.eye(size)
    covariance = np.linalg.inv(precision)
    target = linear.copy()
    target[:, 0] += model.offset
    means = (covariance @ target[:, :, None])[:, :, 0]
    scatters = covariance + means[:, :, None] * means[:, None, :]

    sums.gamma += counts.sum(axis=0)
    sums.Y += (data.reshape(len(data), -1).T @ means).reshape(sums.Y.shape)
    sums.R += counts.T @ pack(scatters)
    sums.utterances += len(means)
    sums.ivector_sum += means.sum(axis=0)
    sums.ivector_scatter += scatters.sum(axis=0)

    fit = np.sum(means * linear) - 0.5 * np.sum(scatters * quadratic)
    centred = means.copy()
    centred[:, 0] -= model.offset
    log_determinants = -np.linalg.slogdet(precision)[1]
    traces = np.trace(covariance, axis1=1, axis2=2)
    prior = -0.5 * np.sum(np.square(centred).sum(axis=1) + traces - size - log_determinants)
    sums.auxf += float(fit + prior)


def _constant_auxf(model: Extractor, gamma: Array, scatter: Array) -> float:
    """What does not depend on the i-vectors: weights, determinants, scatter of the data."""
    log_determinants = np.linalg.slogdet(model.inverse_covariances)[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        constants = np.log(model.weights) + 0.5 * (log_determinants - model.feature_dim * LOG_2PI)
        weighted = np.where(gamma > 0, gamma * constants, 0.0)
    return float(weighted.sum() - 0.5 * np.sum(model.inverse_covariances * scatter))


def update(
    model: Extractor, sums: Expectations, scatter: Array, min_count: float = MIN_COUNT
) -> Extractor:
    """M-step: projections, covariances, then the prior (which turns the i-vector space).

    Gaussians seen less than `min_count` times keep their mean and covariance, and the i-vector
    does not move them (Kaldi leaves them the noise that they began with).

    Raises:
        UserError: all Gaussians are seen less, or the features are linearly dependent.
    """
    seen = sums.gamma >= min_count
    if not seen.any():
        raise UserError(
            f"no Gaussian is seen {min_count:g} times: too little speech for i-vectors",
            fix="Use more training data or fewer Gaussians (features.ivector.ubm.gaussians)",
        )
    fixed = model.projections * (np.arange(model.dim) == 0)
    solved = _solve(sums.R, sums.Y, model.projections)
    projections = np.where(seen[:, None, None], solved, fixed)
    inverse = _inverse_covariances(sums, scatter, projections, seen, model.inverse_covariances)
    unturned = Extractor(model.weights, projections, inverse, model.offset)
    turn, offset = prior_transform(unturned, sums)
    return Extractor(model.weights, projections @ np.linalg.inv(turn), inverse, offset)


def _solve(R: Array, Y: Array, start: Array) -> Array:
    """Y R^-1 for every Gaussian; ill-conditioned R move `start` only where data speak.

    Kaldi's SolveQuadraticMatrixProblem: preconditioned by the diagonal, eigenvalues floored at
    the largest over the condition number.
    """
    scale = 1 / np.sqrt(np.maximum(np.diagonal(R, axis1=1, axis2=2), 1e-40))
    normal = R * scale[:, :, None] * scale[:, None, :]
    values, vectors = np.linalg.eigh(normal)
    floor = values[:, -1:] / MAX_CONDITION
    missing = (Y - start @ R) * scale[:, None, :]
    step = (missing @ vectors) / np.maximum(values, floor)[:, None, :]
    return start + (step @ vectors.transpose(0, 2, 1)) * scale[:, None, :]


def _inverse_covariances(
    sums: Expectations, scatter: Array, projections: Array, seen: NDArray[np.bool_], old: Array
) -> Array:
    """Residual covariances, floored relative to their average, inverted."""
    cross = sums.Y @ projections.transpose(0, 2, 1)
    model = projections @ sums.R @ projections.transpose(0, 2, 1)
    residual = scatter - cross - cross.transpose(0, 2, 1) + model
    floor = VARIANCE_FLOOR * residual[seen].sum(axis=0) / sums.gamma[seen].sum()
    if singular(floor):
        raise UserError(
            "i-vectors: the features are constant or linearly dependent",
            fix="Look at the MFCC and at the transform of the UBM's folder",
        )
    root = np.linalg.cholesky(floor)
    back = np.linalg.inv(root)
    counts = np.maximum(sums.gamma, 1e-10)[:, None, None]
    values, vectors = np.linalg.eigh(back @ (residual / counts) @ back.T)
    # the inverse of root V max(values, 1) V' root'
    whitened = vectors.transpose(0, 2, 1) @ back
    floored = np.maximum(values, 1.0)[:, :, None]
    inverse = whitened.transpose(0, 2, 1) @ (whitened / floored)
    return np.where(seen[:, None, None], inverse, old)


def prior_transform(model: Extractor, sums: Expectations) -> tuple[Array, float]:
    """The turn of the i-vector space after which the prior fits, and the new offset.

    After it the i-vectors have unit covariance, a mean along the first axis, and an average
    quadratic term that is diagonal but for that axis.
    """
    size = model.dim
    mean = sums.ivector_sum / sums.utterances
    covariance = sums.ivector_scatter / sums.utterances - np.outer(mean, mean)
    values, vectors = np.linalg.eigh(covariance)
    whiten = vectors.T / np.sqrt(np.maximum(values, 1e-7))[:, None]
    direction = whiten @ mean
    direction /= np.linalg.norm(direction)
    # Householder reflection that sends the mean onto the first axis
    normal = direction - np.eye(size)[0]
    length = np.linalg.norm(normal)
    reflect = np.eye(size)
    if length > 1e-10:
        reflect -= 2 * np.outer(normal, normal) / length**2
    turn = reflect @ whiten
    weights = model.weights / model.weights.sum()
    average = np.tensordot(weights, model.quadratic, axes=1)
    # rotate all but the first axis so that the average quadratic term becomes diagonal
    undo = np.linalg.inv(turn)
    inner = (undo.T @ average @ undo)[1:, 1:]
    order, rotation = np.linalg.eigh((inner + inner.T) / 2)
    turn[1:] = rotation[:, np.argsort(order)[::-1]].T @ turn[1:]
    return turn, float((turn @ mean)[0])
