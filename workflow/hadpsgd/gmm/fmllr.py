"""FMLLR (constrained MLLR): a speaker's affine transform of features (Kaldi's gmm-est-fmllr).

M. Gales, Maximum likelihood linear transformations for HMM-based speech recognition, Computer
Speech and Language 12, 1998, section 2.2: full transforms, row by row. Names as there and in
Kaldi's transform/fmllr-diag-gmm: beta (count), K (linear), G (quadratic).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hadpsgd.features.matrices import symmetric, unpack
from hadpsgd.gmm.diag_gmm import Array
from hadpsgd.gmm.precisions import Terms, weighted_scatter
from hadpsgd.gmm.statistics import Doubles

ITERATIONS = 40


@dataclass
class Sums:
    """Sums over frames, of which x+ is the features and a 1.

    count: beta; linear: K [dim, dim + 1]; quadratic: G, of each row the packed lower triangle
    [dim, (dim + 1) (dim + 2) / 2].
    """

    count: float
    linear: Doubles
    quadratic: Doubles

    @classmethod
    def zeros(cls, dim: int) -> Sums:
        """No frames yet."""
        return cls(0.0, np.zeros((dim, dim + 1)), np.zeros((dim, (dim + 1) * (dim + 2) // 2)))

    def __iadd__(self, other: Sums) -> Sums:
        self.count += other.count
        self.linear += other.linear
        self.quadratic += other.quadratic
        return self


def sums_of(features: Array, terms: Terms) -> Sums:
    """Sums over frames of one speaker: features float32 [frames, dim] and their terms."""
    used = terms.weights > 0
    ones = np.ones((len(features), 1), np.float32)
    extended = np.concatenate([features, ones], axis=1)[used]
    linear = terms.linear[used].astype(np.float64).T @ extended.astype(np.float64)
    quadratic = weighted_scatter(extended, terms.precisions[used])
    return Sums(float(terms.weights.sum(dtype=np.float64)), linear, quadratic)


def identity(dim: int, dtype: type = np.float64) -> NDArray[np.floating]:
    """The transform that changes nothing: [dim, dim + 1]."""
    return np.eye(dim, dim + 1, dtype=dtype)


def compose(outer: NDArray[np.floating], inner: NDArray[np.floating]) -> NDArray[np.floating]:
    """The transform that applies `inner`, then `outer` (compose-transforms --b-is-affine=true)."""
    result = outer[:, :-1] @ inner
    result[:, -1] += outer[:, -1]
    return result


def auxiliary(transforms: Doubles, sums: Sequence[Sums]) -> Doubles:
    """The auxiliary function of transforms [n, dim, dim + 1], each with its sums: float64 [n].

    beta log |det A| + tr(W K') - sum_d w_d' G_d w_d / 2, as Kaldi's FmllrAuxFuncDiagGmm.
    """
    return _auxiliary(transforms, *_stacked(sums))


def _stacked(sums: Sequence[Sums]) -> tuple[Doubles, Doubles, Doubles]:
    dim = len(sums[0].linear)
    counts = np.array([each.count for each in sums])
    linear = np.array([each.linear for each in sums])
    packed = np.concatenate([each.quadratic for each in sums])
    quadratic = symmetric(unpack(packed, dim + 1)).reshape(len(sums), dim, dim + 1, dim + 1)
    return counts, linear, quadratic


def _auxiliary(
    transforms: Doubles, counts: Doubles, linear: Doubles, quadratic: Doubles
) -> Doubles:
    _, log_det = np.linalg.slogdet(transforms[:, :, :-1])
    bent = (quadratic @ transforms[..., None])[..., 0]
    return counts * log_det + (transforms * (linear - 0.5 * bent)).sum(axis=(1, 2))


def estimate(sums: Sequence[Sums], iterations: int = ITERATIONS) -> tuple[Doubles, Doubles]:
    """Transforms of several speakers from the identity, and what they add to the auxiliary.

    float64 [n, dim, dim + 1] and [n]. Where sums are singular, or nothing is gained, the
    identity and 0 come back.
    """
    counts, linear, quadratic = _stacked(sums)
    dim = linear.shape[1]
    start = np.tile(identity(dim), (len(sums), 1, 1))
    solvable = np.array([_regular(each) for each in quadratic])
    result, gains = start.copy(), np.zeros(len(sums))
    if solvable.any():
        chosen = counts[solvable], linear[solvable], quadratic[solvable]
        found = _row_updates(start[solvable], *chosen, iterations)
        gain = _auxiliary(found, *chosen) - _auxiliary(start[solvable], *chosen)
        better = np.isfinite(found).all(axis=(1, 2)) & (gain > 0)
        places = np.flatnonzero(solvable)[better]
        result[places], gains[places] = found[better], gain[better]
    return result, gains


def _regular(quadratic: Doubles) -> bool:
    """Whether the matrices of one speaker can be inverted to some digits."""
    scale = np.sqrt(np.maximum(np.einsum("dii->di", quadratic), 1e-300))
    smallest = np.linalg.eigvalsh(quadratic / (scale[:, :, None] * scale[:, None, :]))[:, 0]
    return bool(smallest.min() > 1e-9)


def _row_updates(
    transforms: Doubles, counts: Doubles, linear: Doubles, quadratic: Doubles, iterations: int
) -> Doubles:
    """Gales' updates (eqs. 18 to 22), one row of all speakers at a time.

    A row is w = (alpha c + k) G^-1 with its cofactors c; alpha solves a quadratic equation.
    """
    w, dim = transforms.copy(), linear.shape[1]
    inverse = np.linalg.inv(quadratic)
    shift = (inverse @ linear[..., None])[..., 0]
    for _ in range(iterations):
        cofactors = np.linalg.inv(w[:, :, :dim])
        for d in range(dim):
            c = cofactors[:, :, d].copy()
            reach = (inverse[:, d, :, :dim] @ c[..., None])[..., 0]
            e1 = (reach[:, :dim] * c).sum(axis=1)
            e2 = (shift[:, d, :dim] * c).sum(axis=1)
            row = _step(e1, e2, counts)[:, None] * reach + shift[:, d]
            # the inverse after a change of row d (Sherman and Morrison); made anew each iteration
            change = row[:, None, :dim] - w[:, d, None, :dim]
            moved = (change @ cofactors) / (1 + change @ c[..., None])
            cofactors -= c[:, :, None] * moved
            w[:, d] = row
    return w


def _step(e1: Doubles, e2: Doubles, counts: Doubles) -> Doubles:
    root = np.sqrt(e2**2 + 4 * e1 * counts)
    both = np.array([(-e2 + root) / (2 * e1), (-e2 - root) / (2 * e1)])
    objective = counts * np.log(np.abs(both * e1 + e2)) - 0.5 * both**2 * e1
    return np.where(objective[0] > objective[1], both[0], both[1])
