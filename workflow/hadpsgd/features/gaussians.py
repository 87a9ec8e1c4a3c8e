"""Mixtures of diagonal Gaussians as Kaldi keeps and stores them (gmm/diag-gmm): UBMs and pdfs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hadpsgd.kaldi_binary import Reader, Writer

Array = NDArray[np.float32]
LOG_2PI = float(np.log(2 * np.pi))


class Gaussians(NamedTuple):
    """gconsts, weights: float32 [Gaussians]; means_invvars, inv_vars: float32 [Gaussians, dim].

    means_invvars is mean / variance, inv_vars 1 / variance; gconsts: see `from_moments`.
    """

    gconsts: Array
    weights: Array
    means_invvars: Array
    inv_vars: Array


def from_moments(
    weights: NDArray[np.floating], means: NDArray[np.floating], variances: NDArray[np.floating]
) -> Gaussians:
    """Of weights [Gaussians], means and variances [Gaussians, dim].

    gconsts are log weight - (dim log 2 pi - sum log 1/var + sum mean^2/var) / 2.
    """
    means, inverse = np.asarray(means, np.float64), 1 / np.asarray(variances, np.float64)
    spread = np.log(inverse).sum(axis=1) - (np.square(means) * inverse).sum(axis=1)
    with np.errstate(divide="ignore"):  # a weight of zero is never chosen
        logs = np.log(np.asarray(weights, np.float64))
    gconsts = logs - 0.5 * (means.shape[1] * LOG_2PI - spread)
    parts = (gconsts, weights, means * inverse, inverse)
    return Gaussians(*(np.asarray(part, np.float32) for part in parts))


def read_from(reader: Reader) -> Gaussians:
    """Read a mixture (<DiagGMM>).

    Raises:
        UserError: it is something else, cut short, or its parts differ in size.
    """
    reader.expect("<DiagGMM>")
    reader.expect("<GCONSTS>")
    gconsts = reader.vector()
    reader.expect("<WEIGHTS>")
    weights = reader.vector()
    reader.expect("<MEANS_INVVARS>")
    means = reader.matrix()
    reader.expect("<INV_VARS>")
    inverse = reader.matrix()
    reader.expect("</DiagGMM>")
    if not len(gconsts) == len(weights) == len(means) or means.shape != inverse.shape:
        raise reader.fail("the parts of a mixture differ in size")
    parts = (gconsts, weights, means, inverse)
    return Gaussians(*(np.asarray(part, np.float32) for part in parts))


def write_to(gaussians: Gaussians, writer: Writer) -> None:
    """Write a mixture as Kaldi does."""
    writer.token("<DiagGMM>")
    writer.token("<GCONSTS>")
    writer.vector(gaussians.gconsts)
    writer.token("<WEIGHTS>")
    writer.vector(gaussians.weights)
    writer.token("<MEANS_INVVARS>")
    writer.matrix(gaussians.means_invvars)
    writer.token("<INV_VARS>")
    writer.matrix(gaussians.inv_vars)
    writer.token("</DiagGMM>")
