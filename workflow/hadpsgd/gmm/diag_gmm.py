"""Diagonal Gaussian mixtures of `final.mdl`, all pdfs in flat arrays (Kaldi's AmDiagGmm)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hadpsgd.kaldi_binary import Reader, Writer

Array = NDArray[np.float32]
LOG_2PI = float(np.log(2 * np.pi))


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
    inverse = 1.0 / np.asarray(variances, np.float64)
    constants = log_normalisers(np.asarray(weights, np.float64), means, inverse)
    return Mixtures(
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        constants.astype(np.float32),
        np.asarray(weights, np.float32),
        (means * inverse).astype(np.float32),
        inverse.astype(np.float32),
    )


def log_normalisers(
    weights: NDArray[np.float64], means: NDArray[np.floating], inverse: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Kaldi's gconsts: log weight - (D log 2 pi - sum log 1/var + sum mean^2/var) / 2."""
    spread = np.log(inverse).sum(1) - (np.asarray(means, np.float64) ** 2 * inverse).sum(1)
    return np.log(weights) - 0.5 * (inverse.shape[1] * LOG_2PI - spread)


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
    gconsts, weights, means, inverses = [], [], [], []
    for _ in range(reader.int32()):
        reader.expect("<DiagGMM>")
        reader.expect("<GCONSTS>")
        gconsts.append(reader.vector())
        reader.expect("<WEIGHTS>")
        weights.append(reader.vector())
        reader.expect("<MEANS_INVVARS>")
        means.append(reader.matrix())
        reader.expect("<INV_VARS>")
        inverses.append(reader.matrix())
        reader.expect("</DiagGMM>")
        shape = (len(weights[-1]), dim)
        if not (means[-1].shape == inverses[-1].shape == shape == (len(gconsts[-1]), dim)):
            raise reader.fail(f"the parts of mixture {len(weights) - 1} differ in size")
    sizes = [len(w) for w in weights]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    flat = [np.concatenate(part).astype(np.float32) for part in (gconsts, weights, means, inverses)]
    return Mixtures(offsets, *flat)


def write_to(model: Mixtures, writer: Writer) -> None:
    """Write the mixtures as Kaldi does."""
    writer.token("<DIMENSION>")
    writer.int32(model.dim)
    writer.token("<NUMPDFS>")
    writer.int32(model.num_pdfs)
    for begin, end in zip(model.offsets[:-1], model.offsets[1:], strict=True):
        rows = slice(begin, end)
        writer.token("<DiagGMM>")
        writer.token("<GCONSTS>")
        writer.vector(model.gconsts[rows])
        writer.token("<WEIGHTS>")
        writer.vector(model.weights[rows])
        writer.token("<MEANS_INVVARS>")
        writer.matrix(model.means_invvars[rows])
        writer.token("<INV_VARS>")
        writer.matrix(model.inv_vars[rows])
        writer.token("</DiagGMM>")
