"""i-vectors against Kaldi's files, and against the equations written out with loops."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hadpsgd import kaldi_io
from hadpsgd.config.ivector import Ivector
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.errors import UserError
from hadpsgd.features.frontend import Frontend, Inputs
from hadpsgd.features.ivector import extract as extraction
from hadpsgd.features.ivector import extractor, ubm
from hadpsgd.features.ivector.extract import Online, Worker, extract, prior_scale
from hadpsgd.features.ivector.extractor import Extractor
from hadpsgd.features.ivector.statistics import gather, posteriors

EXACT = Ivector(posterior_scale=1.0, max_count=0)


@pytest.fixture
def an4(shared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(shared / "kaldi_an4")
    return shared.resolve() / "kaldi_an4"


def inputs_of(an4: Path, name: str) -> Inputs:
    data = DataDir.read(an4 / "data" / name, audio=False, text=False)
    return Inputs(data, an4 / "data" / name, Frontend.read(an4 / "exp/ivector"))


def small_model(seed: int = 0, gaussians: int = 4, dim: int = 3, size: int = 5):  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.full(gaussians, 5.0))
    means = rng.normal(0, 2, size=(gaussians, dim))
    background = ubm.DiagGmm.from_moments(weights, means, rng.uniform(0.5, 2, (gaussians, dim)))
    roots = rng.normal(size=(gaussians, dim, dim))
    inverse = roots @ roots.transpose(0, 2, 1) + np.eye(dim)
    projections = rng.normal(size=(gaussians, dim, size))
    return background, extractor.Extractor(weights, projections, inverse, 7.5)


def kaldi_posterior(scores: np.ndarray, top: int, min_post: float) -> dict[int, float]:
    """VectorToPosteriorEntry, one frame at a time."""
    best = scores.max()
    entries = [(g, np.exp(s - best)) for g, s in enumerate(scores) if s > best + np.log(min_post)]
    entries = sorted(entries or list(enumerate(np.exp(scores - best))), key=lambda e: -e[1])[:top]
    cutoff = min_post * sum(p for _, p in entries)
    while len(entries) > 1 and entries[-1][1] < cutoff:
        entries.pop()
    total = sum(p for _, p in entries)
    return {g: p / total for g, p in entries}


@given(st.integers(0, 1000), st.integers(1, 12), st.sampled_from([0.0, 0.025, 0.2]))
@settings(max_examples=40)
def test_posteriors_are_pruned_as_kaldi_does(seed: int, top: int, min_post: float) -> None:
    model, _ = small_model(seed, gaussians=9, dim=2)
    features = np.random.default_rng(seed).normal(size=(20, 2)).astype(np.float32)
    found, log_likelihood = model.posteriors(features, top=min(top, 9), min_post=min_post)
    scores = model.log_likelihoods(features).astype(np.float64)
    with np.errstate(divide="ignore"):
        expected = [kaldi_posterior(frame, top, min_post) for frame in scores]
    for frame, entries in zip(found, expected, strict=True):
        assert set(np.flatnonzero(frame)) == set(entries)
        np.testing.assert_allclose(frame[list(entries)], list(entries.values()), atol=1e-5)
    if top >= 9 and min_post == 0:
        full = np.logaddexp.reduce(scores, axis=1).sum()
        assert log_likelihood == pytest.approx(full, rel=1e-5)


def test_log_likelihoods_are_those_of_gaussians() -> None:
    model, _ = small_model()
    features = np.random.default_rng(3).normal(size=(6, 3)).astype(np.float32)
    for gaussian in range(4):
        mean, variance = model.means[gaussian], model.variances[gaussian]
        density = -0.5 * (np.log(2 * np.pi * variance) + (features - mean) ** 2 / variance).sum(1)
        found = model.log_likelihoods(features)[:, gaussian]
        expected = density + np.log(model.weights[gaussian])
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_kaldis_files_are_rewritten_byte_for_byte(an4: Path, tmp_path: Path) -> None:
    source = an4 / "exp/ivector"
    ubm.write(tmp_path / "final.dubm", ubm.read(source / "final.dubm"))
    extractor.write(tmp_path / "final.ie", extractor.read(source / "final.ie"))
    for name in ("final.dubm", "final.ie"):
        assert (tmp_path / name).read_bytes() == (source / name).read_bytes()


def test_broken_models_are_one_line(an4: Path, tmp_path: Path) -> None:
    content = (an4 / "exp/ivector/final.ie").read_bytes()
    (tmp_path / "final.ie").write_bytes(content[:100_000])
    with pytest.raises(UserError, match=r"final.ie: the file is cut short"):
        extractor.read(tmp_path / "final.ie")
    with pytest.raises(UserError, match="expected <IvectorExtractor>"):
        extractor.read(an4 / "exp/ivector/final.dubm")
    with pytest.raises(UserError, match="no such file"):
        ubm.read(tmp_path / "final.dubm")
    weights = b"\4" + (2).to_bytes(4, "little")
    dependent = content.replace(
        b"<w> DM \4\0\0\0\0\4\0\0\0\0", b"<w> DM " + weights * 2 + b"\0" * 32, 1
    )
    (tmp_path / "w.ie").write_bytes(dependent)
    with pytest.raises(UserError, match="weights depend on the i-vector"):
        extractor.read(tmp_path / "w.ie")


@pytest.mark.parametrize("name", ["test", "train"])
def test_ivectors_of_speakers_equal_kaldis(an4: Path, tmp_path: Path, name: str) -> None:
    model = extractor.read(an4 / "exp/ivector/final.ie")
    background = ubm.read(an4 / "exp/ivector/final.dubm")
    extract(inputs_of(an4, name), background, model, EXACT, tmp_path, 1)
    found = dict(kaldi_io.iterate(tmp_path / "ivectors_spk.scp", "vector"))
    golden = dict(kaldi_io.iterate(an4 / f"exp/ivector/ivectors_{name}.ark", "vector"))
    assert list(found) == sorted(golden)
    for speaker, vector in found.items():
        expected = golden[speaker]
        lengths = np.linalg.norm(vector), np.linalg.norm(expected)
        assert vector @ expected / np.prod(lengths) >= 0.99999
        assert lengths[0] == pytest.approx(lengths[1], rel=1e-4)


def dense_ivector(
    model: extractor.Extractor, weights: np.ndarray, features: np.ndarray, scale: float = 1.0
) -> np.ndarray:
    """The mean of the i-vector's posterior, frame by frame and Gaussian by Gaussian."""
    precision = scale * np.eye(model.dim)
    linear = np.zeros(model.dim)
    linear[0] = scale * model.offset
    for frame, row in zip(features.astype(float), weights, strict=True):
        for m, inverse, weight in zip(
            model.projections, model.inverse_covariances, row, strict=True
        ):
            precision += weight * m.T @ inverse @ m
            linear += weight * m.T @ inverse @ frame
    vector = np.linalg.solve(precision, linear)
    vector[0] -= model.offset
    return vector


def test_an_ivector_solves_its_equation() -> None:
    background, model = small_model()
    features = np.random.default_rng(1).normal(size=(30, 3)).astype(np.float32)
    options = Ivector(top=3, posterior_scale=0.3)
    stats = gather(background, features, options)
    found = model.estimate(stats.counts[None], stats.sums[None])[0]
    weights, _ = posteriors(background, features, options)
    np.testing.assert_allclose(found, dense_ivector(model, weights, features), rtol=1e-8)


THREADS = """
from test_ivector import small_model
import numpy as np
from threadpoolctl import threadpool_info
from hadpsgd.parallel import map_in_order

def make():
    background, model = small_model()
    def threads(_):
        model.estimate(np.ones((1, 4)), np.ones((1, 4, 3)))
        return max(library["num_threads"] for library in threadpool_info())
    return threads

print([*map_in_order(make, range(4), 2), *map_in_order(make, range(2), 1)])
"""


def test_a_process_of_many_has_one_thread_of_every_library() -> None:
    """A BLAS that the first i-vector loads, after threads were limited, has many, and other sums:
    i-vectors of over 127 values would depend on cores and --jobs.
    """
    limits = {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "GOTO_NUM_THREADS"}
    env = {key: value for key, value in os.environ.items() if key not in limits}
    done = subprocess.run(
        [sys.executable, "-c", THREADS],
        cwd=Path(__file__).parent,
        env=env | {"OPENBLAS_NUM_THREADS": "3"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{[1] * 6}\n"


@given(st.integers(1, 40), st.integers(1, 12), st.sampled_from([0.0, 3.0]))
@settings(max_examples=25)
def test_online_ivectors_use_the_past_alone(frames: int, period: int, max_count: float) -> None:
    background, model = small_model()
    options = Ivector(top=4, posterior_scale=0.5, period=period, max_count=max_count)
    rng = np.random.default_rng(frames)
    utterances = [rng.normal(size=(n, 3)).astype(np.float32) for n in (frames, 17)]
    online, past = Online(model, options), np.zeros((0, 3), np.float32)
    for features in utterances:
        found = online(posteriors(background, features, options)[0], features)
        assert len(found) == -(-len(features) // period)
        for number, vector in enumerate(found):
            seen = np.concatenate([past, features[: number * period + 1]])
            weights, _ = posteriors(background, seen, options)
            scale = prior_scale(np.array([weights.sum()]), max_count)[0]
            np.testing.assert_allclose(
                vector, dense_ivector(model, weights, seen, scale), rtol=1e-4, atol=1e-5
            )
        past = np.concatenate([past, features])  # a speaker's next utterance goes on


def test_max_count_is_kaldis_scaling_of_statistics() -> None:
    background, model = small_model()
    features = np.random.default_rng(2).normal(size=(50, 3)).astype(np.float32)
    stats = gather(background, features, EXACT)
    counts, sums = stats.counts[None], stats.sums[None]
    found = model.estimate(counts, sums, prior_scale(counts.sum(axis=1), 20.0))
    factor = 20.0 / counts.sum()
    np.testing.assert_allclose(found, model.estimate(factor * counts, factor * sums), rtol=1e-9)
    few = prior_scale(np.array([5.0, 40.0]), 20.0)
    np.testing.assert_array_equal(few, [1.0, 2.0])


def test_statistics_of_few_utterances_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """A speaker may have hours of them."""
    background, model = small_model()
    rng = np.random.default_rng(4)
    features = {f"u{n}": rng.normal(size=(9, 3)).astype(np.float32) for n in range(11)}
    rows: list[int] = []
    estimate = Extractor.estimate

    def counted(self: Extractor, counts: np.ndarray, *rest: Any) -> np.ndarray:
        rows.append(len(counts))
        return estimate(self, counts, *rest)

    monkeypatch.setattr(Extractor, "estimate", counted)
    worker = Worker(cast(Inputs, features), background, model, Ivector(per="utterance", top=4))
    whole, frames = worker(("speaker", list(features)))
    monkeypatch.setattr(extraction, "_TOGETHER", 4)
    found, counted_frames = worker(("speaker", list(features)))
    assert rows == [11, 4, 4, 3] and frames == counted_frames == 99
    assert [name for name, _ in found] == list(features)
    for (_, one), (_, other) in zip(found, whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_jobs_do_not_change_the_result(an4: Path, tmp_path: Path) -> None:
    model = extractor.read(an4 / "exp/ivector/final.ie")
    background = ubm.read(an4 / "exp/ivector/final.dubm")
    for jobs in (1, 2):
        options = Ivector(per="utterance")
        extract(inputs_of(an4, "test"), background, model, options, tmp_path / f"{jobs}", jobs)
    one, two = ((tmp_path / f"{jobs}/ivectors_utt.ark").read_bytes() for jobs in (1, 2))
    assert one == two
