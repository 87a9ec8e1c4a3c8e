"""The universal background model: one mixture of diagonal Gaussians (Kaldi's final.dubm)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadpsgd.features import gaussians
from hadpsgd.files import atomic_file
from hadpsgd.kaldi_binary import Reader, Writer

Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class DiagGmm:
    """Kaldi's DiagGmm, float32: gconsts and weights [Gaussians], the rest [Gaussians, dim]."""

    gconsts: Matrix
    weights: Matrix
    means_invvars: Matrix
    inv_vars: Matrix

    @classmethod
    def from_moments(
        cls,
        weights: NDArray[np.floating],
        means: NDArray[np.floating],
        variances: NDArray[np.floating],
    ) -> DiagGmm:
        """The mixture of weights [Gaussians], means and variances [Gaussians, dim]."""
        return cls(*gaussians.from_moments(weights, means, variances))

    @property
    def dim(self) -> int:
        """Dimension of the features."""
        return self.inv_vars.shape[1]

    def __len__(self) -> int:
        """Gaussians."""
        return len(self.weights)

    @property
    def means(self) -> NDArray[np.float64]:
        """float64 [Gaussians, dim]."""
        return self.means_invvars.astype(np.float64) / self.inv_vars

    @property
    def variances(self) -> NDArray[np.float64]:
        """float64 [Gaussians, dim]."""
        return 1 / self.inv_vars.astype(np.float64)

    @cached_property
    def _projection(self) -> Matrix:
        return np.concatenate([self.means_invvars, -0.5 * self.inv_vars], axis=1).T.copy()

    def log_likelihoods(self, features: Matrix) -> Matrix:
        """log (weight * Gaussian), float32 [frames, Gaussians]."""
        both = np.concatenate([features, np.square(features)], axis=1)
        scores = both @ self._projection
        scores += self.gconsts
        return scores

    def posteriors(self, features: Matrix, *, top: int, min_post: float) -> tuple[Matrix, float]:
        """Posteriors [frames, Gaussians] of the best Gaussians, and the log-likelihood's sum.

        As Kaldi's gmm-global-get-post: at most `top` a frame, none below `min_post`, what is
        left sums to one.
        """
        scores = self.log_likelihoods(features)
        best = scores.max(axis=1, keepdims=True)
        scores -= best
        posteriors = np.exp(scores, out=scores)
        posteriors[posteriors <= min_post] = 0  # the best is 1 here
        crowded = np.flatnonzero(np.count_nonzero(posteriors, axis=1) > top)
        if len(crowded):
            worst = np.argpartition(posteriors[crowded], -top, axis=1)[:, :-top]
            posteriors[crowded[:, None], worst] = 0
        totals = posteriors.sum(axis=1, keepdims=True)
        posteriors[posteriors < np.minimum(min_post * totals, 1)] = 0
        totals = posteriors.sum(axis=1, keepdims=True)
        posteriors /= totals
        return posteriors, float((best + np.log(totals)).sum(dtype=np.float64))


def read(path: Path) -> DiagGmm:
    """Read final.dubm.

    Raises:
        UserError: missing, in text form, cut, or not a diagonal mixture.
    """
    return DiagGmm(*gaussians.read_from(Reader.open(path)))


def write(path: Path, model: DiagGmm) -> None:
    """Write final.dubm."""
    writer = Writer()
    parts = (model.gconsts, model.weights, model.means_invvars, model.inv_vars)
    gaussians.write_to(gaussians.Gaussians(*parts), writer)
    with atomic_file(path) as temporary:
        temporary.write_bytes(writer.content())
