"""Sufficient statistics of diagonal mixtures and transitions (Kaldi's gmm-acc-stats-ali)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hadpsgd.gmm.diag_gmm import Array, Mixtures
from hadpsgd.gmm.likelihood import component_scores

Doubles = NDArray[np.float64]


@dataclass(kw_only=True)
class Statistics:
    """Sums over frames.

    occupancy: [Gaussians]; first, second: [Gaussians, dim], sums of x and x squared weighted by
    posteriors; ids: [ids + 1], how often each transition-id occurs; likelihood: sum of
    log-likelihoods; frames: how many.
    """

    occupancy: Doubles
    first: Doubles
    second: Doubles
    ids: Doubles
    likelihood: float = 0.0
    frames: float = 0.0

    @classmethod
    def zeros(cls, *, gaussians: int, dim: int, num_ids: int) -> Statistics:
        """No frames yet."""
        return cls(
            occupancy=np.zeros(gaussians),
            first=np.zeros((gaussians, dim)),
            second=np.zeros((gaussians, dim)),
            ids=np.zeros(num_ids + 1),
        )

    def __iadd__(self, other: Statistics) -> Statistics:
        self.occupancy += other.occupancy
        self.first += other.first
        self.second += other.second
        self.ids += other.ids
        self.likelihood += other.likelihood
        self.frames += other.frames
        return self


def frames_by_pdf(pdfs: NDArray[np.integer]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """(pdf, its frames) for every pdf that occurs; negative pdfs are left out."""
    order = np.argsort(pdfs, kind="stable")
    sorted_pdfs = pdfs[order]
    bounds = np.flatnonzero(np.diff(sorted_pdfs)) + 1
    for part in np.split(order, bounds):
        if len(part) and pdfs[part[0]] >= 0:
            yield int(pdfs[part[0]]), part


def posteriors(mixtures: Mixtures, features: Array, pdf: int) -> tuple[Array, Array]:
    """Posteriors of a pdf's Gaussians [frames, Gaussians] and log-likelihoods [frames]."""
    scores, _ = component_scores(mixtures, features, np.array([pdf]))
    best = scores.max(axis=1, keepdims=True)
    scores -= best
    np.exp(scores, out=scores)
    total = scores.sum(axis=1, keepdims=True)
    scores /= total
    return scores, (best + np.log(total))[:, 0]


def accumulate(
    mixtures: Mixtures,
    features: Array,
    ids: NDArray[np.int32],
    pdf_of_id: NDArray[np.int32],
    observed: Array | None = None,
    into: Statistics | None = None,
) -> Statistics:
    """Statistics of aligned frames, added to `into`; those with no transition-id are left out.

    `observed` are other features of the same frames to take the sums of, where posteriors come
    from `features` (Kaldi's gmm-acc-stats-twofeats).
    """
    observed = features if observed is None else observed
    sums = into or Statistics.zeros(
        gaussians=len(mixtures.weights), dim=observed.shape[1], num_ids=len(pdf_of_id) - 1
    )
    total = 0.0
    sums.ids += np.bincount(ids[ids > 0], minlength=len(pdf_of_id))
    for pdf, frames in frames_by_pdf(np.where(ids > 0, pdf_of_id[ids], -1)):
        shares, likelihood = posteriors(mixtures, features[frames], pdf)
        rows = slice(mixtures.offsets[pdf], mixtures.offsets[pdf + 1])
        seen = observed[frames]
        sums.occupancy[rows] += shares.sum(axis=0, dtype=np.float64)
        sums.first[rows] += shares.T @ seen
        sums.second[rows] += shares.T @ (seen * seen)
        total += float(likelihood.sum(dtype=np.float64))
        sums.frames += len(frames)
    sums.likelihood += total
    return sums
