"""LDA and MLLT against dense evaluations of their equations, and against Kaldi's matrices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from hadpsgd import kaldi_io
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.errors import UserError
from hadpsgd.features.frontend import Frontend, Inputs
from hadpsgd.gmm import diag_gmm, lda, mllt
from hadpsgd.gmm import model as models
from hadpsgd.gmm.diag_gmm import Mixtures
from hadpsgd.gmm.likelihood import log_likelihoods
from hadpsgd.gmm.precisions import PdfPosteriors, from_alignment
from hadpsgd.gmm.statistics import accumulate
from hadpsgd.gmm.update import estimate


def posteriors_of(pdfs: np.ndarray, weights: np.ndarray | None = None) -> PdfPosteriors:
    ones = np.ones(len(pdfs), np.float32)
    return PdfPosteriors(np.arange(len(pdfs)), pdfs, ones if weights is None else weights)


def test_projection_solves_the_generalised_eigenproblem() -> None:
    rng = np.random.default_rng(0)
    classes = rng.integers(9, size=3000)
    mixing = rng.normal(size=(7, 7))
    moved = (rng.normal(size=(9, 7))[classes] + rng.normal(size=(3000, 7))) @ mixing + 2
    features = moved.astype(np.float32)
    weights = rng.choice([0.5, 1.0, 2.0], 3000).astype(np.float32)
    whole = lda.sums_of(features, posteriors_of(classes, weights), 12)
    parts = lda.Sums.zeros(classes=12, dim=7)
    for rows in (slice(0, 100), slice(100, 101), slice(101, 3000)):
        parts += lda.sums_of(features[rows], posteriors_of(classes[rows], weights[rows]), 12)
    np.testing.assert_allclose(parts.second, whole.second)
    # covariances by their definition
    mean = np.average(features, axis=0, weights=weights)
    within, between = np.zeros((7, 7)), np.zeros((7, 7))
    for c in range(9):
        chosen, share = features[classes == c].astype(float), weights[classes == c]
        centre = np.average(chosen, axis=0, weights=share)
        within += (chosen - centre).T @ ((chosen - centre) * share[:, None]) / weights.sum()
        between += share.sum() / weights.sum() * np.outer(centre - mean, centre - mean)
    found = lda.covariances(parts)
    np.testing.assert_allclose(found.within, within, atol=1e-4)
    np.testing.assert_allclose(found.between, between, atol=1e-4)
    projection = lda.estimate(parts, 4)
    np.testing.assert_allclose(
        projection.values, scipy.linalg.eigh(between, within)[0][::-1], atol=1e-4
    )
    np.testing.assert_allclose(projection.full @ within @ projection.full.T, np.eye(7), atol=1e-3)
    np.testing.assert_array_equal(projection.matrix, projection.full[:4])


def test_what_lda_cannot_do_is_said() -> None:
    rng = np.random.default_rng(1)
    features = rng.normal(size=(200, 3)).astype(np.float32)
    sums = lda.sums_of(features, posteriors_of(rng.integers(3, size=200)), 5)
    with pytest.raises(UserError, match="LDA to 3 dimensions out of 3 features of 3 classes"):
        lda.estimate(sums, 3)
    with pytest.raises(UserError, match="no frame has a class"):
        lda.estimate(lda.Sums.zeros(classes=5, dim=3), 2)
    flat = np.repeat(features[:, :1], 3, axis=1)  # singular: smoothed, as Kaldi does
    sums = lda.sums_of(flat, posteriors_of(rng.integers(4, size=200)), 5)
    assert np.isfinite(lda.estimate(sums, 2).full).all()


def test_lda_of_an4_spans_kaldis_space(shared: Path) -> None:
    """Kaldi's full.mat comes of other alignments of the same data: nearly as good a space."""
    kaldi = shared.resolve() / "kaldi_an4"
    model = models.read(kaldi / "exp/tri3b_ali/final.mdl").transitions
    data = DataDir.read(kaldi / "data/train", audio=False, text=False)
    inputs = Inputs(data, kaldi / "data/train", Frontend(left=3, right=3))
    sums = lda.Sums.zeros(classes=model.num_pdfs, dim=91)
    for name, ids in kaldi_io.iterate(kaldi / "exp/tri3b_ali/ali.1.gz", "ints"):
        posteriors = from_alignment(model, ids, tuple(range(1, 11)))
        sums += lda.sums_of(inputs[name], posteriors, model.num_pdfs)
    ours = lda.estimate(sums, 40)
    theirs = kaldi_io.read(kaldi / "exp/tri3b/full.mat").astype(float)
    assert ours.matrix.shape == (40, 91)
    # variance between classes that a projection keeps, with that within made the identity
    within, between = lda.covariances(sums)

    def kept(rows: np.ndarray) -> float:
        return float(np.trace(np.linalg.solve(rows @ within @ rows.T, rows @ between @ rows.T)))

    best, kaldis = kept(ours.full[:40].astype(float)), kept(theirs[:40])
    assert 0.98 * best < kaldis <= best


def random_mixtures(rng: np.random.Generator, dim: int) -> Mixtures:
    sizes = rng.integers(1, 4, 5)
    total = int(sizes.sum())
    weights = np.concatenate([np.full(size, 1 / size) for size in sizes])
    means = 2 * rng.normal(size=(total, dim))
    return diag_gmm.make(sizes, weights, means, rng.uniform(0.3, 2, (total, dim)))


@settings(max_examples=6)
@given(seed=st.integers(0, 1000), dim=st.integers(1, 5))
def test_mllt_is_the_optimum(seed: int, dim: int) -> None:
    rng = np.random.default_rng(seed)
    mixtures = random_mixtures(rng, dim)
    pdfs = rng.integers(5, size=300)
    features = (2 * rng.normal(size=(300, dim))).astype(np.float32)
    sums = mllt.Sums.zeros(gaussians=len(mixtures.weights), dim=dim)
    for rows in (slice(0, 7), slice(7, 300)):
        sums += mllt.sums_of(mixtures, features[rows], posteriors_of(pdfs[rows]))
    # G by its definition, frame by frame
    dense = np.zeros((dim, dim, dim))
    for x, pdf in zip(features.astype(float), pdfs, strict=True):
        rows = slice(mixtures.offsets[pdf], mixtures.offsets[pdf + 1])
        gap, inverse = x - mixtures.means[rows], mixtures.inv_vars[rows].astype(float)
        density = mixtures.weights[rows] * np.exp(
            -0.5 * (gap**2 * inverse).sum(1) + 0.5 * np.log(inverse).sum(1)
        )
        shares = density / density.sum()
        dense += np.einsum("m,md,mi,mj->dij", shares, inverse, gap, gap)
    np.testing.assert_allclose(mllt.spread(mixtures, sums), dense, rtol=1e-3, atol=0.1)
    matrix, gain, frames = mllt.estimate(mixtures, sums, 3000)  # small data converge slowly
    assert frames == pytest.approx(300) and gain > 0
    gradient = frames * np.linalg.inv(matrix).T - np.einsum("dij,dj->di", dense, matrix)
    assert np.abs(gradient).max() < 2e-3 * frames
    best = mllt.auxiliary(matrix, dense, frames)
    for _ in range(10):
        near = matrix + 0.02 * rng.normal(size=matrix.shape)
        assert mllt.auxiliary(near, dense, frames) < best


def test_mllt_undoes_a_correlation() -> None:
    rng = np.random.default_rng(5)
    mixtures, mixing = random_mixtures(rng, 4), rng.normal(size=(4, 4)) + 2 * np.eye(4)
    gaussians = rng.integers(len(mixtures.weights), size=8000)
    clean = mixtures.means[gaussians] + rng.normal(size=(8000, 4)) * np.sqrt(
        mixtures.variances[gaussians]
    )
    features, pdfs = (clean @ mixing.T).astype(np.float32), mixtures.pdf_of[gaussians]
    # a model of the mixed features with diagonal covariances
    mixed = mllt.transform_means(mixtures, mixing)
    spread = np.einsum("ij,mj->mi", mixing**2, mixtures.variances)
    mixed = diag_gmm.make(np.diff(mixed.offsets), mixed.weights, mixed.means, spread)
    found = mllt.estimate(mixed, mllt.sums_of(mixed, features, posteriors_of(pdfs)))
    moved = mllt.transform_means(mixed, found.matrix)

    def score(model: Mixtures, frames: np.ndarray) -> float:
        return float(log_likelihoods(model, frames)[np.arange(len(pdfs)), pdfs].mean())

    after = (features @ found.matrix.T).astype(np.float32)
    log_det = np.linalg.slogdet(found.matrix)[1]
    gain = score(moved, after) + log_det - score(mixed, features)
    assert gain > 0.9 * found.gain > 0.5
    offset = np.concatenate([np.eye(4), np.ones((4, 1))], axis=1)
    np.testing.assert_allclose(
        mllt.transform_means(mixed, offset).means, mixed.means + 1, rtol=1e-3, atol=1e-3
    )
    few = mllt.sums_of(mixed, features[:5], posteriors_of(pdfs[:5]))
    with pytest.raises(UserError, match="5 frames for 4 dimensions"):
        mllt.estimate(mixed, few)


@pytest.mark.parametrize("kind", ["repeated", "constant"])
def test_mllt_of_dependent_features_is_refused(kind: str) -> None:
    rng = np.random.default_rng(2)
    features = rng.normal(size=(4000, 4)).astype(np.float32)
    features[:, 3] = features[:, 2] if kind == "repeated" else 0.0
    pdfs = rng.integers(5, size=4000)
    model, ids = random_mixtures(rng, 4), (pdfs + 1).astype(np.int32)
    for _ in range(3):
        sums = accumulate(model, features, ids, np.arange(-1, 5, dtype=np.int32))
        model = estimate(model, sums)
    with pytest.raises(UserError, match="linearly dependent"):
        mllt.estimate(model, mllt.sums_of(model, features, posteriors_of(pdfs)))
