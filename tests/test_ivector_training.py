"""Training of the UBM and the extractor: against Kaldi's figures and the maths itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import ivector_stages as stages
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hadpsgd import kaldi_io
from hadpsgd.config.ivector import Ivector, Ubm
from hadpsgd.config.load import check, load
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.errors import UserError
from hadpsgd.features.fusion import Fusion
from hadpsgd.features.ivector import extractor, statistics, training, ubm, ubm_training
from hadpsgd.features.ivector.train_command import train_extractor

# README of the reference data: Kaldi's auxiliary function a frame, by iteration
KALDI_AUXF = [-56.042, -48.415, -47.063, -46.693, -46.518, -46.413, -46.344, -46.295, -46.259,
              -46.230]  # fmt: skip


@pytest.fixture
def an4(shared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(shared / "kaldi_an4")
    return shared.resolve() / "kaldi_an4"


def test_the_extractor_improves_as_much_as_kaldis(an4: Path, tmp_path: Path) -> None:
    config = check(
        {"name": "t", "corpus": {"kind": "an4"},
         "features": {"ivector": {"posterior_scale": 1.0, "max_count": 0}}},
        "test",
    )  # fmt: skip
    data = DataDir.read(an4 / "data/train", audio=False, text=False)
    folder = an4 / "exp/ivector"
    history = train_extractor(
        config, data, feats=an4 / "data/train", ubm_folder=folder, out=tmp_path, jobs=2
    )
    assert (np.diff(history) > 0).all()
    assert history[-1] - history[0] >= KALDI_AUXF[-1] - KALDI_AUXF[0]
    assert history[-1] >= KALDI_AUXF[-1]
    np.testing.assert_allclose(history, KALDI_AUXF, atol=0.03)
    model = extractor.read(tmp_path / "final.ie")
    assert model.projections.shape == (128, 40, 100)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "cmvn_opts", "final.dubm", "final.ie", "final.mat", "splice_opts"
    ]  # fmt: skip


def toy(seed: int, tmp_path: Path) -> tuple[ubm.DiagGmm, statistics.Spool, np.ndarray]:
    """Utterances whose means move in two directions."""
    rng = np.random.default_rng(seed)
    gaussians, dim = 3, 2
    means = rng.normal(0, 4, size=(gaussians, dim))
    moves = rng.normal(0, 1, size=(gaussians, dim, 2))
    background = ubm.DiagGmm.from_moments(
        np.full(gaussians, 1 / gaussians), means, np.full((gaussians, dim), 1.5)
    )
    options = Ivector(top=3, posterior_scale=1.0)
    spool = statistics.Spool(tmp_path / "spool", gaussians=gaussians, dim=dim)
    scatter = np.zeros((gaussians, dim, dim))
    for _ in range(40):
        which = rng.integers(0, gaussians, 60)
        shifted = means + moves @ rng.normal(size=2)
        features = (shifted[which] + rng.normal(size=(60, dim))).astype(np.float32)
        stats = statistics.gather(background, features, options, scatter=True)
        assert stats.scatter is not None
        scatter += stats.scatter
        spool.append(stats)
    return background, spool, scatter


def dense_auxf(model: extractor.Extractor, spool: statistics.Spool, scatter: np.ndarray) -> float:
    """Kaldi's GetAuxf, utterance by utterance, with its own grouping of the terms."""
    total = 0.0
    gamma_sum = np.zeros(model.gaussians)
    for counts, sums in spool.batches(1):
        gamma, x = counts[0], sums[0]
        gamma_sum += gamma
        B = sum(g * u for g, u in zip(gamma, model.quadratic, strict=True))
        a = sum(m.T @ s @ f for m, s, f in zip(
            model.projections, model.inverse_covariances, x, strict=True))  # fmt: skip
        precision = B + np.eye(model.dim)
        var = np.linalg.inv(precision)
        prior_mean = model.offset * np.eye(model.dim)[0]
        mean = var @ (a + prior_mean)
        total += mean @ a - 0.5 * mean @ B @ mean - 0.5 * np.trace(var @ B)
        offset = mean - prior_mean
        log_det = np.linalg.slogdet(var)[1]
        total += -0.5 * (offset @ offset + np.trace(var) - model.dim - log_det)
    for i in range(model.gaussians):
        inverse = model.inverse_covariances[i]
        gconst = 0.5 * (np.linalg.slogdet(inverse)[1] - model.feature_dim * np.log(2 * np.pi))
        total += gamma_sum[i] * (gconst + np.log(model.weights[i]))
        total += -0.5 * np.trace(inverse @ scatter[i])
    return total


@given(st.integers(0, 10_000))
@settings(max_examples=12)
def test_every_iteration_raises_the_auxiliary_function(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    background, spool, scatter = toy(seed, tmp_path_factory.mktemp("toy"))
    model = training.initial(background, dim=4, seed=seed)
    before = -np.inf
    for _ in range(6):
        sums = training.expect(model, spool, scatter)
        assert sums.auxf == pytest.approx(dense_auxf(model, spool, scatter), rel=1e-9)
        assert sums.auxf > before
        before = sums.auxf
        model = training.update(model, sums, scatter)


def test_after_the_update_the_prior_fits(tmp_path: Path) -> None:
    background, spool, scatter = toy(5, tmp_path)
    model = training.initial(background, dim=4, seed=1)
    sums = training.expect(model, spool, scatter)
    turn, offset = training.prior_transform(model, sums)
    mean = sums.ivector_sum / sums.utterances
    covariance = sums.ivector_scatter / sums.utterances - np.outer(mean, mean)
    np.testing.assert_allclose(turn @ covariance @ turn.T, np.eye(4), atol=1e-6)
    np.testing.assert_allclose(turn @ mean, [offset, 0, 0, 0], atol=1e-6)
    assert offset > 0
    average = np.tensordot(model.weights, model.quadratic, axes=1)
    undo = np.linalg.inv(turn)
    inner = (undo.T @ average @ undo)[1:, 1:]
    off = inner - np.diag(np.diag(inner))
    assert np.abs(off).max() < 1e-6 * np.abs(inner).max()


def test_gaussians_without_data_stay(tmp_path: Path) -> None:
    background, spool, scatter = toy(3, tmp_path)
    model = training.initial(background, dim=3, seed=1)
    sums = training.expect(model, spool, scatter)
    sums.gamma[1] = 0.0
    updated = training.update(model, sums, scatter)
    assert np.isfinite(updated.projections).all()
    # the i-vector moves its mean only along the axis of the prior's mean
    moved = updated.projections[1] @ training.prior_transform(model, sums)[0]
    assert np.linalg.matrix_rank(moved, tol=1e-6) == 1
    np.testing.assert_array_equal(updated.inverse_covariances[1], model.inverse_covariances[1])
    with pytest.raises(UserError, match="no Gaussian is seen 1e"):
        training.update(model, sums, scatter, min_count=1e6)


@pytest.mark.parametrize("kind", ["repeated", "constant"])
def test_dependent_features_are_refused(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    background = ubm.DiagGmm.from_moments(
        np.full(3, 1 / 3), rng.normal(size=(3, 3)), np.ones((3, 3))
    )
    spool, scatter = statistics.Spool(tmp_path / "spool", gaussians=3, dim=3), np.zeros((3, 3, 3))
    for _ in range(20):
        features = rng.normal(size=(60, 3)).astype(np.float32)
        features[:, 2] = features[:, 1] if kind == "repeated" else 0.0
        options = Ivector(top=3, posterior_scale=1.0)
        stats = statistics.gather(background, features, options, scatter=True)
        assert stats.scatter is not None
        scatter += stats.scatter
        spool.append(stats)
    model = training.initial(background, dim=3, seed=1)
    with pytest.raises(UserError, match="constant or linearly dependent"):
        for _ in range(3):
            model = training.update(model, training.expect(model, spool, scatter), scatter, 10.0)


class TestUbm:
    def passes(self, frames: np.ndarray, per: int = 500) -> Iterator[Iterable[np.ndarray]]:
        while True:
            yield (frames[start : start + per] for start in range(0, len(frames), per))

    def mixture(self) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(0)
        means = np.array([[-6.0, 0], [6, 0], [0, 6], [0, -6]])
        frames = means[rng.integers(0, 4, 8000)] + rng.normal(size=(8000, 2)) * [1.0, 0.5]
        return means, frames.astype(np.float32)

    def test_a_mixture_is_found_again(self) -> None:
        means, frames = self.mixture()
        options = Ubm(gaussians=4, sample_frames=4000)
        model = ubm_training.train(options, self.passes(frames), seed=3)
        assert len(model) == 4
        distances = np.linalg.norm(model.means[:, None] - means[None], axis=2)
        assert (distances.min(axis=0) < 0.15).all()
        np.testing.assert_allclose(model.weights, 0.25, atol=0.03)
        np.testing.assert_allclose(model.variances.mean(axis=0), [1, 0.25], rtol=0.1)

    def test_the_likelihood_never_falls_and_sums_do_not_depend_on_pieces(self) -> None:
        _, frames = self.mixture()
        model = ubm_training.initial(frames, 6, np.random.default_rng(1))
        before = -np.inf
        for _ in range(8):
            whole, parts = ubm_training.Accumulator(model), ubm_training.Accumulator(model)
            whole.add(frames)
            for part in np.array_split(frames, 13):
                parts.add(part)
            np.testing.assert_allclose(whole.sums, parts.sums, rtol=1e-4, atol=1e-2)
            assert whole.log_likelihood >= before - 1e-3 * len(frames)
            before = whole.log_likelihood
            model = whole.update(0.0, remove=False)

    def test_the_same_seed_gives_the_same_bits(self, tmp_path: Path) -> None:
        _, frames = self.mixture()
        for name in ("a", "b"):
            model = ubm_training.train(Ubm(gaussians=6), self.passes(frames), seed=3)
            ubm.write(tmp_path / name, model)
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()

    def test_frames_are_sampled_uniformly(self) -> None:
        numbers = np.arange(20_000, dtype=np.float32)[:, None]
        kept = ubm_training.sample_frames(np.array_split(numbers, 40), count=2000, seed=1)
        assert kept.shape == (2000, 1) and len(np.unique(kept)) == 2000
        share = np.histogram(kept, bins=10, range=(0, 20_000))[0]
        assert (abs(share - 200) < 60).all()
        few = ubm_training.sample_frames([numbers[:30]], count=2000, seed=1)
        np.testing.assert_array_equal(few, numbers[:30])

    def test_too_few_frames_and_starving_gaussians(self) -> None:
        with pytest.raises(UserError, match="too few for 4 Gaussians"):
            ubm_training.initial(np.zeros((30, 2), np.float32), 4, np.random.default_rng(0))
        _, frames = self.mixture()
        model = ubm.DiagGmm.from_moments(
            np.array([0.5, 0.5]), np.array([[0.0, 0], [900, 900]]), np.full((2, 2), 9.0)
        )
        sums = ubm_training.Accumulator(model)
        sums.add(frames)
        assert len(sums.update(1e-4, remove=True)) == 1
        assert len(sums.update(1e-4, remove=False)) == 2


class TestCommands:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return stages.write(tmp_path)

    @pytest.mark.parametrize("per", ["speaker", "utterance", "online"])
    def test_from_features_to_the_fused_input(self, folder: Path, per: str) -> None:
        assert stages.run(folder, "ubm", "ubm") == 0
        assert stages.run(folder, "ivector-train", "ie", "--ubm", f"{folder}/ubm") == 0
        out = "feats/ivector/train"
        extractor_folder = ["--extractor", f"{folder}/ie"]
        assert stages.run(folder, "ivector-extract", out, *extractor_folder, per="speaker") == 0
        assert stages.run(folder, "ivector-extract", out, *extractor_folder, per=per) == 0
        data = DataDir.read(folder / "data/train", audio=False, text=False)
        fusion = Fusion(load(folder / "c.yaml"), folder / "feats", data)
        assert fusion.dims == {"ivector": 4, "logmel": 24}
        fused = dict(fusion)
        vectors = {name: np.unique(matrix[:, :4], axis=0) for name, matrix in fused.items()}
        assert len(vectors["s1-2"]) == (15 if per == "online" else 1)
        same = np.array_equal(vectors["s1-2"], vectors["s1-3"])
        assert same == (per == "speaker")
        if per == "online":
            stored = kaldi_io.Scp(folder / out / "ivector_online.scp")["s1-2"]
            np.testing.assert_array_equal(fused["s1-2"][:, :4], np.repeat(stored, 10, axis=0))

    def test_models_that_do_not_fit(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert stages.run(folder, "ubm", "ubm") == 0
        assert stages.run(folder, "ivector-train", "ie", "--ubm", f"{folder}/ubm") == 0
        assert stages.run(folder, "ubm", "other", input_dim=5) == 0
        (folder / "ie/final.dubm").write_bytes((folder / "other/final.dubm").read_bytes())
        capsys.readouterr()
        arguments = ["--extractor", f"{folder}/ie"]
        assert stages.run(folder, "ivector-extract", "x", *arguments) == 2
        assert "8 Gaussians of 6 dimensions, final.dubm 8 of 5" in capsys.readouterr().err
        assert stages.run(folder, "ivector-train", "ie2", "--ubm", f"{folder}/nowhere") == 2
        assert "no such file" in capsys.readouterr().err

    def test_online_vectors_of_other_utterances(self, folder: Path) -> None:
        out = folder / "feats/ivector/train"
        out.mkdir(parents=True)
        stages.run(folder, "ubm", "ubm")
        data = DataDir.read(folder / "data/train", audio=False, text=False)
        with pytest.raises(UserError, match=r"0 of ivectors_spk.scp"):
            Fusion(load(folder / "c.yaml"), folder / "feats", data)
        vectors = ((name, np.zeros((9, 4), np.float32)) for name in data.utterances)
        kaldi_io.write_archive(out / "ivector_online.ark", vectors, out / "ivector_online.scp")
        with pytest.raises(UserError, match="ivector_period: no such file"):
            Fusion(load(folder / "c.yaml"), folder / "feats", data)
        (out / "ivector_period").write_text("10\n")
        fusion = Fusion(load(folder / "c.yaml"), folder / "feats", data)
        with pytest.raises(UserError, match="utterance s0-0: 9 i-vectors with a period of 10"):
            list(fusion)
