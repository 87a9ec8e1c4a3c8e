"""Diagonal Gaussian mixtures of `final.mdl`, all pdfs in flat arrays (Kaldi's AmDiagGmm)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hadpsgd.features import gaussians
from hadpsgd.kaldi_binary import Reader, Writer

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Mixtures:
    """Gaussians of all pdfs, those of pdf j in rows `offsets[j]:offsets[j + 1]`.

    offsets: int64 [pdfs + 1]; weights, gconsts: float32 [Gaussians];
    means_invvars, inv_vars: float32 [Gaussians, dim] (mean / variance, 1 / variance).
    """

    offsets: NDArray[np.int64]
    gconsts: Array
    weights: Array
    means_invvars: Array
    inv_vars: Array

    @property
    def num_pdfs(self) -> int:
        """Number of pdfs."""
        return len(self.offsets) - 1

    @property
    def dim(self) -> int:
        """Dimension of the features."""
        return self.inv_vars.shape[1]

    @property
    def means(self) -> Array:
        """float32 [Gaussians, dim]."""
        return self.means_invvars / self.inv_vars

    @property
    def variances(self) -> Array:
        """float32 [Gaussians, dim]."""
        return 1.0 / self.inv_vars

    @cached_property
    def parameters(self) -> Array:
        """float32 [Gaussians, 2 dim]: what features, and their squares, are multiplied with."""
        return np.concatenate([self.means_invvars, -0.5 * self.inv_vars], axis=1)

    def per_pdf(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum values of Gaussians over each pdf."""
        return np.add.reduceat(values, self.offsets[:-1])

    @property
    def pdf_of(self) -> NDArray[np.int64]:
        """int64 [Gaussians]: the pdf that a Gaussian belongs to."""
        return np.repeat(np.arange(self.num_pdfs), np.diff(self.offsets))


def make(
    sizes: Sequence[int] | NDArray[np.integer],
    weights: NDArray[np.floating],
    means: NDArray[np.floating],
    variances: NDArray[np.floating],
) -> Mixtures:
    """Mixtures of `sizes[j]` Gaussians for pdf j, with their normalising constants."""
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Mixtures(offsets, *gaussians.from_moments(weights, means, variances))


def read_from(reader: Reader) -> Mixtures:
    """Read the mixtures that follow the transition model of a GMM's `final.mdl`.

    Raises:
        UserError: the content is no mixture model, or its parts do not fit one another.
    """
    if reader.peek() != "<DIMENSION>":
        raise reader.fail("not a GMM: no <DIMENSION> after the transition model")
    reader.expect("<DIMENSION>")
    dim = reader.int32()
    reader.expect("<NUMPDFS>")
    pdfs = []
    for number in range(reader.int32()):
        pdfs.append(gaussians.read_from(reader))
        if pdfs[-1].inv_vars.shape[1] != dim:
            raise reader.fail(f"mixture {number} is not of {dim} dimensions")
    if not pdfs:
        raise reader.fail("no mixtures")
    offsets = np.concatenate([[0], np.cumsum([len(pdf.weights) for pdf in pdfs])])
    return Mixtures(offsets.astype(np.int64), *map(np.concatenate, zip(*pdfs, strict=True)))


def write_to(model: Mixtures, writer: Writer) -> None:
    """Write the mixtures as Kaldi does."""
    writer.token("<DIMENSION>")
    writer.int32(model.dim)
    writer.token("<NUMPDFS>")
    writer.int32(model.num_pdfs)
    for begin, end in zip(model.offsets[:-1], model.offsets[1:], strict=True):
        rows = slice(begin, end)
        parts = (model.gconsts, model.weights, model.means_invvars, model.inv_vars)
        gaussians.write_to(gaussians.Gaussians(*(part[rows] for part in parts)), writer)
