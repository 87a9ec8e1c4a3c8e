"""FMLLR: Kaldi's own transforms on AN4, the optimum of the auxiliary, too little speech."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from hadpsgd import kaldi_io
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.errors import UserError
from hadpsgd.features.frontend import Frontend, Inputs
from hadpsgd.gmm import diag_gmm, fmllr
from hadpsgd.gmm import model as models
from hadpsgd.gmm.adaptation import Adaptation, Part, adapt
from hadpsgd.gmm.diag_gmm import Mixtures
from hadpsgd.gmm.likelihood import log_likelihoods
from hadpsgd.gmm.precisions import PdfPosteriors, frame_terms, from_alignment

SILENCE = tuple(range(1, 11))


@pytest.fixture(scope="module")
def an4(shared: Path) -> tuple[dict[str, fmllr.Sums], Adaptation]:
    kaldi = shared.resolve() / "kaldi_an4"
    model = models.read(kaldi / "exp/tri3b_ali/final.mdl")
    aligned = {
        name: ids
        for job in (1, 2)
        for name, ids in kaldi_io.iterate(kaldi / f"exp/tri3b_ali/ali.{job}.gz", "ints")
    }
    data = DataDir.read(kaldi / "data/train", audio=False, text=False)
    inputs = Inputs(data, kaldi / "data/train", Frontend.read(kaldi / "exp/tri3b"))
    speakers = [data.utterances[name].speaker for name in inputs.utterances]
    kept: dict[str, fmllr.Sums] = {}

    def parts() -> Iterator[Part]:
        for speaker in dict.fromkeys(speakers):
            names = [name for name in inputs.utterances
                     if data.utterances[name].speaker == speaker]  # fmt: skip
            features = np.concatenate([inputs[name] for name in names])
            ids = np.concatenate([aligned[name] for name in names])
            posteriors = from_alignment(model.transitions, ids, SILENCE)
            sums = fmllr.sums_of(features, frame_terms(model.mixtures, features, posteriors))
            kept[speaker] = sums
            yield Part(speaker, len(names), sums)

    return kept, adapt(parts(), Counter(speakers), dim=40)


def test_transforms_equal_kaldis(
    shared: Path, an4: tuple[dict[str, fmllr.Sums], Adaptation]
) -> None:
    sums, found = an4
    golden = dict(kaldi_io.iterate(shared / "kaldi_an4/golden/fmllr_trans_from_ali_train.ark"))
    assert found.transforms.keys() == golden.keys() and len(golden) == 74
    for speaker, expected in golden.items():
        scale = np.abs(expected).max()
        np.testing.assert_allclose(found.transforms[speaker], expected, atol=1e-4 * scale)
        ours, kaldis = fmllr.auxiliary(
            np.array([found.transforms[speaker], expected], float), [sums[speaker]] * 2
        )
        assert ours >= kaldis - 1e-6 * sums[speaker].count
    assert sum(found.counts.values()) == 189_793
    assert found.gain == pytest.approx(9.12054, abs=1e-5)
    assert found.counts["mwhw"] == 2502 and found.gains["mwhw"] == pytest.approx(8.48895, abs=1e-5)
    assert not found.few and not found.singular
    assert "74 speakers, 189793 frames, gain 9.12054" in found.summary


def random_mixtures(rng: np.random.Generator, dim: int, pdfs: int = 4) -> Mixtures:
    sizes = rng.integers(1, 4, pdfs)
    total = int(sizes.sum())
    weights = np.concatenate([np.full(size, 1 / size) for size in sizes])
    means, variances = 3 * rng.normal(size=(total, dim)), rng.uniform(0.3, 2, (total, dim))
    return diag_gmm.make(sizes, weights, means, variances)


def drawn(rng: np.random.Generator, mixtures: Mixtures, frames: int) -> tuple[np.ndarray, ...]:
    """Frames of random pdfs: features and pdfs."""
    gaussians = rng.integers(len(mixtures.weights), size=frames)
    noise = rng.normal(size=(frames, mixtures.dim))
    clean = mixtures.means[gaussians] + noise * np.sqrt(mixtures.variances[gaussians])
    return clean.astype(np.float32), mixtures.pdf_of[gaussians]


def all_frames(pdfs: np.ndarray) -> PdfPosteriors:
    return PdfPosteriors(np.arange(len(pdfs)), pdfs, np.ones(len(pdfs), np.float32))


@settings(max_examples=15)
@given(seed=st.integers(0, 1000), dim=st.integers(1, 5))
def test_the_optimum_is_one(seed: int, dim: int) -> None:
    """The gradient of the auxiliary, beta A^-T + K - W G, vanishes; no nearby point is better."""
    rng = np.random.default_rng(seed)
    mixtures = random_mixtures(rng, dim)
    clean, pdfs = drawn(rng, mixtures, 400)
    features = (clean @ (np.eye(dim) + 0.2 * rng.normal(size=(dim, dim))) + 1).astype(np.float32)
    terms = frame_terms(mixtures, features, all_frames(pdfs))
    sums = fmllr.sums_of(features, terms)
    # sums by the definition, frame by frame
    plus = np.concatenate([features, np.ones((400, 1))], axis=1).astype(float)
    dense = np.einsum("td,ti,tj->dij", terms.precisions.astype(float), plus, plus)
    lower = np.tril_indices(dim + 1)
    np.testing.assert_allclose(sums.quadratic, dense[:, *lower], rtol=1e-4, atol=1e-2)
    [found], [gain] = fmllr.estimate([sums], 200)
    gradient = sums.linear - np.einsum("di,dij->dj", found, dense)
    gradient[:, :dim] += sums.count * np.linalg.inv(found[:, :dim]).T
    assert np.abs(gradient).max() < 1e-3 * sums.count and gain > 0
    near = found + 0.01 * rng.normal(size=(20, dim, dim + 1))
    assert fmllr.auxiliary(near, [sums] * 20).max() < fmllr.auxiliary(found[None], [sums])[0]


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_features_turned_over_are_turned_back(dim: int) -> None:
    """The determinant is negative then: the best row is the other root of its equation."""
    rng = np.random.default_rng(5 + dim)
    mixtures = random_mixtures(rng, dim)
    clean, pdfs = drawn(rng, mixtures, 3000)
    features = clean.copy()
    features[:, 0] *= -1
    # posteriors of the right Gaussians, as after some iterations
    terms = frame_terms(mixtures, features, all_frames(pdfs), mixtures, clean)
    sums = fmllr.sums_of(features, terms)
    [found], _ = fmllr.estimate([sums], 200)

    def worse(flat: np.ndarray) -> float:
        return -float(fmllr.auxiliary(flat.reshape(1, dim, dim + 1), [sums])[0])

    turned = np.eye(dim, dim + 1)
    turned[0, 0] = -1
    best = scipy.optimize.minimize(worse, turned.ravel(), method="BFGS").fun
    assert worse(found) <= best + 1e-6 * sums.count
    assert np.linalg.det(found[:, :dim]) < 0


def test_a_distortion_is_undone_and_the_likelihood_rises() -> None:
    rng = np.random.default_rng(1)
    mixtures = random_mixtures(rng, 4, 6)
    clean, pdfs = drawn(rng, mixtures, 20_000)
    distort = np.eye(4, 5) + 0.15 * rng.normal(size=(4, 5))
    features = (clean @ distort[:, :4].T + distort[:, 4]).astype(np.float32)
    whole = fmllr.identity(4)
    for _ in range(6):  # posteriors improve with the transform
        adapted = (features @ whole[:, :4].T + whole[:, 4]).astype(np.float32)
        sums = fmllr.sums_of(adapted, frame_terms(mixtures, adapted, all_frames(pdfs)))
        [step], _ = fmllr.estimate([sums])
        whole = fmllr.compose(step, whole)
    undone = fmllr.compose(whole, distort)
    np.testing.assert_allclose(undone, np.eye(4, 5), atol=0.06)

    def score(frames: np.ndarray) -> float:
        return float(log_likelihoods(mixtures, frames)[np.arange(len(pdfs)), pdfs].mean())

    back = (features @ whole[:, :4].T + whole[:, 4]).astype(np.float32)
    assert score(back) + np.linalg.slogdet(whole[:, :4])[1] > score(features) + 0.1


def test_two_models_take_posteriors_from_the_first() -> None:
    rng = np.random.default_rng(2)
    final, clean = random_mixtures(rng, 3), rng.normal(size=(50, 3)).astype(np.float32)
    sizes = np.diff(final.offsets)
    first = diag_gmm.make(sizes, final.weights, final.means + 0.5, final.variances)
    pdfs = rng.integers(4, size=50)
    terms = frame_terms(final, clean, all_frames(pdfs), first, clean * 2)
    for t, pdf in enumerate(pdfs):
        rows = slice(final.offsets[pdf], final.offsets[pdf + 1])
        distance = (2 * clean[t] - first.means[rows]) ** 2 / first.variances[rows]
        density = np.exp(-0.5 * distance.sum(1)) / np.sqrt(first.variances[rows].prod(1))
        density *= first.weights[rows]
        shares = density / density.sum()
        np.testing.assert_allclose(terms.precisions[t], shares @ final.inv_vars[rows], rtol=1e-3)
        np.testing.assert_allclose(terms.linear[t], shares @ final.means_invvars[rows],
                                   rtol=1e-3, atol=1e-4)  # fmt: skip
    with pytest.raises(UserError, match="other Gaussians"):
        frame_terms(final, clean, all_frames(pdfs), random_mixtures(rng, 3, 5))


def test_too_little_or_singular_speech_shares_one_transform() -> None:
    rng = np.random.default_rng(3)
    mixtures = random_mixtures(rng, 3)

    def part(speaker: str, frames: int, constant: bool = False) -> Part:
        features, pdfs = drawn(rng, mixtures, frames)
        features = (0 * features if constant else features * 1.5).astype(np.float32)
        return Part(speaker, 1, fmllr.sums_of(
            features, frame_terms(mixtures, features, all_frames(pdfs))))  # fmt: skip

    sizes = {"a": 2, "b": 1, "c": 1, "silent": 1}
    parts = [part("a", 600), part("b", 40), part("c", 900, constant=True), part("a", 600)]
    found = adapt(parts, sizes, dim=3)
    assert found.few == ["b", "silent"] and found.singular == ["c"]
    assert found.transforms.keys() == sizes.keys() and found.counts["a"] == 1200
    assert found.gains.keys() == {"a"}
    np.testing.assert_array_equal(found.transforms["b"], found.transforms["c"])
    assert not np.allclose(found.transforms["b"], np.eye(3, 4), atol=0.05)
    assert "2 with too little speech" in found.summary and "singular" in found.summary
    alone = adapt([part("b", 40)], {"b": 1}, dim=3)
    np.testing.assert_array_equal(alone.transforms["b"], np.eye(3, 4))


def test_more_speakers_than_are_worked_on_at_a_time() -> None:
    """Sorted by speaker or not, all get the transform of their own."""
    rng = np.random.default_rng(7)
    mixtures = random_mixtures(rng, 2)
    parts = []
    for number in range(37):
        features, pdfs = drawn(rng, mixtures, 600)
        features = (features * rng.uniform(0.7, 1.3, 2)).astype(np.float32)
        sums = fmllr.sums_of(features, frame_terms(mixtures, features, all_frames(pdfs)))
        parts.append(Part(speaker=f"s{number}", utterances=1, sums=sums))
    sizes = {part.speaker: 1 for part in parts} | {"s36": 2}  # an utterance of the last is missing
    found = adapt(parts, sizes, dim=2)
    assert not found.few and not found.singular and found.gains.keys() == sizes.keys()
    for part in parts:
        [alone], _ = fmllr.estimate([part.sums])
        np.testing.assert_allclose(found.transforms[part.speaker], alone, rtol=1e-4, atol=1e-5)


def test_several_pdfs_a_frame_and_silence_left_out(shared: Path) -> None:
    rng = np.random.default_rng(4)
    mixtures = random_mixtures(rng, 3)
    features, pdfs = drawn(rng, mixtures, 30)
    half = np.full(30, 0.5, np.float32)
    twice = PdfPosteriors(np.tile(np.arange(30), 2), np.concatenate([pdfs, (pdfs + 1) % 4]),
                          np.concatenate([half, half]))  # fmt: skip
    both = frame_terms(mixtures, features, twice)
    apart = [frame_terms(mixtures, features, all_frames(p)) for p in (pdfs, (pdfs + 1) % 4)]
    np.testing.assert_allclose(
        both.linear, (apart[0].linear + apart[1].linear) / 2, rtol=1e-5, atol=1e-5
    )
    model = models.read(shared / "kaldi_an4/exp/tri3b_ali/final.mdl").transitions
    ids = np.array([0, 1, int(np.flatnonzero(model.phone == 11)[0])], np.int32)
    left = from_alignment(model, ids, SILENCE)
    assert left.frames.tolist() == [2] and left.weights.tolist() == [1.0]
    lighter = from_alignment(model, ids, SILENCE, 0.1)
    np.testing.assert_allclose(lighter.weights, [0.1, 1.0])
