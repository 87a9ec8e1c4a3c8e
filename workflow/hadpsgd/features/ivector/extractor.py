"""The i-vector extractor (Kaldi's final.ie): Gaussian i has mean M_i x for the i-vector x.

The prior of x is a unit Gaussian around (offset, 0, 0, ...). An i-vector as it is written and used
has the offset taken off its first element, as Kaldi's programs do.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from hadpsgd.errors import UserError
from hadpsgd.features.matrices import pack, unpack
from hadpsgd.files import atomic_file
from hadpsgd.kaldi_binary import Reader, Writer

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Extractor:
    """Parameters, all float64.

    weights: [Gaussians]; projections: M_i, [Gaussians, dim, ivector]; inverse_covariances:
    Sigma_i^-1, [Gaussians, dim, dim]; offset: mean of the prior's first element.
    """

    weights: Array
    projections: Array
    inverse_covariances: Array
    offset: float

    @property
    def gaussians(self) -> int:
        """Number of Gaussians."""
        return self.projections.shape[0]

    @property
    def feature_dim(self) -> int:
        """Dimension of the features."""
        return self.projections.shape[1]

    @property
    def dim(self) -> int:
        """Dimension of the i-vectors."""
        return self.projections.shape[2]

    @cached_property
    def weighted(self) -> Array:
        """Sigma_i^-1 M_i, [Gaussians, dim, ivector]."""
        return self.inverse_covariances @ self.projections

    @cached_property
    def quadratic(self) -> Array:
        """U_i = M_i' Sigma_i^-1 M_i, [Gaussians, ivector, ivector]."""
        return self.projections.transpose(0, 2, 1) @ self.weighted

    def linear_terms(self, sums: NDArray[np.floating]) -> Array:
        """sum_i M_i' Sigma_i^-1 f_i of first-order sums [n, Gaussians, dim]: [n, ivector].

        Computed in the precision of `sums`.
        """
        return (sums.reshape(len(sums), -1) @ self._flat[sums.dtype.char][0]).astype(np.float64)

    def quadratic_terms(self, counts: NDArray[np.floating]) -> Array:
        """sum_i gamma_i U_i of counts [n, Gaussians]: [n, ivector, ivector], lower triangles.

        Computed in the precision of `counts`.
        """
        return unpack(counts @ self._flat[counts.dtype.char][1], self.dim)

    @cached_property
    def _flat(self) -> dict[str, tuple[NDArray[np.floating], NDArray[np.floating]]]:
        """By precision: Sigma_i^-1 M_i as one matrix, and the packed triangles of U_i."""
        double = self.weighted.reshape(-1, self.dim), pack(self.quadratic)
        return {"d": double, "f": (double[0].astype(np.float32), double[1].astype(np.float32))}

    def estimate(self, counts: Array, sums: Array, prior_scales: Array | float = 1.0) -> Array:
        """i-vectors [n, ivector] (offset removed) of statistics: counts [n, G], sums [n, G, D].

        `prior_scales` [n] weighs the prior (Kaldi's --max-count).
        """
        return self.solve(
            self.linear_terms(sums), self.quadratic_terms(counts), np.asarray(prior_scales)
        )

    def solve(self, linear: Array, quadratic: Array, prior_scales: Array) -> Array:
        """As `estimate`, from linear [n, ivector] and quadratic terms (which it overwrites)."""
        scales = np.broadcast_to(prior_scales, len(linear))
        quadratic[:, np.arange(self.dim), np.arange(self.dim)] += scales[:, None]
        # relative to the offset the prior's mean is zero: the solution keeps its digits
        centred = linear - quadratic[:, :, 0] * self.offset
        centred[:, 0] += scales * self.offset
        found = np.empty_like(linear)
        for number, (matrix, right) in enumerate(zip(quadratic, centred, strict=True)):
            # LAPACK reads the transpose of a lower triangle in C's order as an upper one
            _, found[number], status = lapack.dposv(matrix.T, right, lower=0, overwrite_a=1)
            if status:
                raise ValueError("the precision of an i-vector is not positive definite")
        return found


def read(path: Path) -> Extractor:
    """Read final.ie.

    Raises:
        UserError: missing, cut, not an extractor, or one whose weights depend on the i-vector.
    """
    reader = Reader.open(path)
    reader.expect("<IvectorExtractor>")
    reader.expect("<w>")
    if reader.matrix().size:
        raise UserError(
            "its weights depend on the i-vector",
            where=path,
            fix="Train it with ivector-extractor-init --use-weights=false",
        )
    reader.expect("<w_vec>")
    weights = reader.vector()
    reader.expect("<M>")
    projections = [reader.matrix() for _ in range(reader.int32())]
    reader.expect("<SigmaInv>")
    inverses = [reader.symmetric() for _ in projections]
    reader.expect("<IvectorOffset>")
    offset = reader.float64()
    reader.expect("</IvectorExtractor>")
    if len({part.shape for part in projections}) != 1 or len(weights) != len(projections):
        raise reader.fail("the Gaussians differ in size")
    return Extractor(
        weights.astype(np.float64),
        np.stack(projections).astype(np.float64),
        np.stack(inverses).astype(np.float64),
        offset,
    )


def write(path: Path, model: Extractor) -> None:
    """Write final.ie."""
    writer = Writer()
    writer.token("<IvectorExtractor>")
    writer.token("<w>")
    writer.matrix(np.zeros((0, 0)))
    writer.token("<w_vec>")
    writer.vector(model.weights)
    writer.token("<M>")
    writer.int32(model.gaussians)
    for projection in model.projections:
        writer.matrix(projection)
    writer.token("<SigmaInv>")
    for inverse in model.inverse_covariances:
        writer.symmetric(inverse)
    writer.token("<IvectorOffset>")
    writer.float64(model.offset)
    writer.token("</IvectorExtractor>")
    with atomic_file(path) as temporary:
        temporary.write_bytes(writer.content())
