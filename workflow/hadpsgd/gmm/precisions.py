"""Expected precisions of frames under their mixtures: what FMLLR and MLLT sum up.

Of each frame t, with posteriors g of Gaussians m: sum_m g / variance and sum_m g mean / variance.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hadpsgd.errors import UserError
from hadpsgd.gmm.diag_gmm import Array, Mixtures
from hadpsgd.gmm.statistics import Doubles, frames_by_pdf, posteriors
from hadpsgd.gmm.transition_model import TransitionModel

_BLOCK = 256


class PdfPosteriors(NamedTuple):
    """Pdfs of frames, with weights; a frame has none, one or several, each pdf at most once.

    frames: int [entries]; pdfs: int [entries]; weights: float32 [entries].
    """

    frames: NDArray[np.integer]
    pdfs: NDArray[np.integer]
    weights: Array


class Terms(NamedTuple):
    """Of each frame: sum of weights [frames]; linear [frames, dim], posterior times mean /
    variance; precisions [frames, dim], posterior / variance."""

    weights: Array
    linear: Array
    precisions: Array


def from_alignment(
    model: TransitionModel,
    ids: NDArray[np.int32],
    quiet: tuple[int, ...] = (),
    quiet_weight: float = 0.0,
) -> PdfPosteriors:
    """Posteriors of an alignment; phones in `quiet` count `quiet_weight`.

    Frames whose transition-id is not above 0 have none. Kaldi's ali-to-post and
    weight-silence-post.
    """
    weights = np.where(np.isin(model.phone[ids], quiet), quiet_weight, 1.0) * (ids > 0)
    frames = np.flatnonzero(weights)
    return PdfPosteriors(frames, model.pdf[ids[frames]], weights[frames].astype(np.float32))


def frame_terms(
    mixtures: Mixtures,
    features: Array,
    pdfs: PdfPosteriors,
    aligned_by: Mixtures | None = None,
    aligned_on: Array | None = None,
) -> Terms:
    """Terms of frames [frames, dim].

    Posteriors of Gaussians come from the mixtures `aligned_by` and the features `aligned_on`
    where these are given (final.alimdl and unadapted features: Kaldi's gmm-post-to-gpost and
    gmm-est-fmllr-gpost), else from `mixtures` and `features` (gmm-est-fmllr).

    Raises:
        UserError: the two models have not the same numbers of Gaussians.
    """
    source = mixtures if aligned_by is None else aligned_by
    seen = features if aligned_on is None else aligned_on
    if not np.array_equal(source.offsets, mixtures.offsets):
        raise UserError(
            "the model of the alignment has other Gaussians than the model adapted to",
            fix="final.alimdl and final.mdl must be of the same training",
        )
    shape = (len(features), mixtures.dim)
    terms = Terms(np.zeros(len(features), np.float32), np.zeros(shape, np.float32),
                  np.zeros(shape, np.float32))  # fmt: skip
    for pdf, entries in frames_by_pdf(pdfs.pdfs):
        frames, weights = pdfs.frames[entries], pdfs.weights[entries]
        shares, _ = posteriors(source, seen[frames], pdf)
        shares *= weights[:, None]
        rows = slice(mixtures.offsets[pdf], mixtures.offsets[pdf + 1])
        terms.weights[frames] += weights
        terms.linear[frames] += shares @ mixtures.means_invvars[rows]
        terms.precisions[frames] += shares @ mixtures.inv_vars[rows]
    return terms


def weighted_scatter(features: Array, precisions: Array) -> Doubles:
    """sum over frames of precision_d x x', for every dimension d of the precisions.

    features: float32 [frames, n]; precisions: float32 [frames, dim]; returns packed lower
    triangles, float64 [dim, n (n + 1) / 2].
    """
    width = features.shape[1]
    rows, columns = np.tril_indices(width)
    total = np.zeros((precisions.shape[1], len(rows)))
    for start in range(0, len(features), _BLOCK):
        # by columns: products of whole rows are contiguous
        block = np.ascontiguousarray(features[start : start + _BLOCK].T)
        total += (block[rows] * block[columns] @ precisions[start : start + _BLOCK]).T
    return total
