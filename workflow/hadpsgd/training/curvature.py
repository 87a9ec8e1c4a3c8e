"""The largest eigenvalue of a loss's Hessian, from gradients alone."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

Map = Callable[[Tensor], Tensor]
"""Of a vector [elements] to one of the same length."""
PRODUCTS = 20
"""Products with the Hessian at most; a basis of as many vectors is kept."""
CLOSE = 0.01
"""Relative error at which no more are taken."""


def hessian_product(gradient: Map, at: Tensor) -> Map:
    """Products of the Hessian at a point with vectors of length 1, by central differences.

    Args:
        gradient: of the loss at a point [elements].
        at: the point [elements].

    The step is the root of the arithmetic's precision, times the point's norm: half of the digits
    are lost.
    """
    step = math.sqrt(torch.finfo(at.dtype).eps) * (float(at.norm()) or 1.0)

    def product(direction: Tensor) -> Tensor:
        ahead = gradient(at + step * direction)
        return ahead.sub_(gradient(at - step * direction)).div_(2 * step)

    return product


def top_eigenvalue(product: Map, start: Tensor) -> float:
    """The largest eigenvalue (not: by magnitude) of a symmetric matrix, by Lanczos' method.

    Powers of the matrix would find a large negative one, and need many more products.

    Args:
        product: with a vector of length 1, [elements].
        start: not orthogonal to the eigenvector, [elements].

    Returns:
        An eigenvalue within `CLOSE` (or what `PRODUCTS` products give); NaN where a product is not
        finite.
    """
    basis = [start / start.norm()]
    diagonal: list[float] = []
    beside: list[float] = []
    while True:
        image = product(basis[-1])
        diagonal.append(float(image @ basis[-1]))
        for _ in range(2):  # once leaves rounding's share of those before
            for vector in basis:
                image -= (image @ vector) * vector
        rest = float(image.norm())
        if not math.isfinite(rest + diagonal[-1]):
            return math.nan
        value, error = _largest(diagonal, beside, rest)
        tiny = rest <= 1e-6 * max(map(abs, diagonal))  # nothing is left but rounding
        if error <= CLOSE * abs(value) or tiny or len(basis) == min(PRODUCTS, start.numel()):
            return value
        beside.append(rest)
        basis.append(image / rest)


def _largest(diagonal: list[float], beside: list[float], rest: float) -> tuple[float, float]:
    """Of the tridiagonal matrix; how far from it the nearest one of the whole matrix may be."""
    small = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    if beside:
        off = torch.tensor(beside, dtype=torch.float64)
        small = small + torch.diag(off, 1) + torch.diag(off, -1)
    values, vectors = torch.linalg.eigh(small)
    return float(values[-1]), rest * abs(float(vectors[-1, -1]))
