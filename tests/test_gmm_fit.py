"""How well utterances fit their transcripts: beside dense sums, with noise and wrong states."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from hadpsgd.gmm import diag_gmm, fit


def toy(pdfs: int, rng: np.random.Generator) -> tuple[diag_gmm.Mixtures, np.ndarray]:
    """A mixture of one Gaussian a pdf, and its means."""
    means = rng.normal(size=(pdfs, 3))
    return diag_gmm.make([1] * pdfs, np.ones(pdfs), means, np.ones((pdfs, 3))), means


@pytest.mark.parametrize("frames", [1, 7, fit.FRAMES])
def test_it_is_the_mean_log_posterior(frames: int) -> None:
    rng = np.random.default_rng(1)
    mixtures, means = toy(5, rng)
    features = rng.normal(size=(frames, 3)).astype(np.float32)
    pdfs = rng.integers(5, size=frames).astype(np.int32)
    dense = np.stack([multivariate_normal.logpdf(features, mean) for mean in means]).reshape(5, -1)
    wanted = (dense[pdfs, np.arange(frames)] - logsumexp(dense, axis=0)).mean()
    assert fit.fit(mixtures, features, pdfs) == pytest.approx(wanted, abs=1e-5)


def test_some_frames_and_pdfs_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those aligned to are always among the others, which the sum must not leave out."""
    rng = np.random.default_rng(2)
    mixtures, means = toy(40, rng)
    monkeypatch.setattr(fit, "PDFS", 4)
    pdfs = rng.integers(40, size=3000).astype(np.int32)
    features = (means[pdfs] + 0.1 * rng.normal(size=(3000, 3))).astype(np.float32)
    good = fit.fit(mixtures, features, pdfs)
    assert -np.log(fit.FRAMES) < good < 0
    assert fit.fit(mixtures, features, rng.permutation(pdfs)) < good - 1


def test_indices_are_even_and_different() -> None:
    assert fit.some(3, most=10).tolist() == [0, 1, 2]
    assert fit.some(1, most=5).tolist() == [0]
    assert fit.some(1000, most=3).tolist() == [0, 499, 999]


def test_likelihoods_of_noise_tell_nothing() -> None:
    """Twice the noise: frames are far less likely, and fit little worse; wrong states do."""
    rng = np.random.default_rng(3)
    means = 6 * np.eye(4, 3)
    mixtures = diag_gmm.make([1] * 4, np.ones(4), means, np.ones((4, 3)))
    pdfs = rng.integers(4, size=400).astype(np.int32)
    noise = rng.normal(size=(400, 3))
    clean, noisy = ((means[pdfs] + k * noise).astype(np.float32) for k in (1, 2))
    assert fit.fit(mixtures, noisy, pdfs) > -0.5
    assert fit.fit(mixtures, clean, (pdfs + 1) % 4) < -10
