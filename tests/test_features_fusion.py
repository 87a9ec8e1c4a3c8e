"""Fusion of streams into the model's input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hadpsgd import kaldi_io
from hadpsgd.config import Config
from hadpsgd.config.load import check
from hadpsgd.corpus.datadir import DataDir, Utterance
from hadpsgd.errors import UserError
from hadpsgd.features import cmvn
from hadpsgd.features.deltas import add_deltas
from hadpsgd.features.fusion import Fusion

SPEAKERS = {"a-1": "a", "a-2": "a", "b-1": "b"}
FRAMES = {"a-1": 12, "a-2": 9, "b-1": 30}


def config(**features: object) -> Config:
    sat = {"kind": "sat"}  # a source of fmllr
    content = {"name": "t", "corpus": {"kind": "an4"}, "alignment": sat, "features": features}
    return check(content, "test")


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    utterances = {
        name: Utterance(id=name, speaker=speaker, recording=name)
        for name, speaker in SPEAKERS.items()
    }
    return DataDir(tmp_path / "data" / "train", utterances)


def store(folder: Path, matrices: dict[str, np.ndarray], *, statistics: bool = True) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    kaldi_io.write_archive(folder / "feats.ark", matrices.items(), folder / "feats.scp")
    if statistics:
        sums = cmvn.SpeakerStatistics(SPEAKERS)
        for name, matrix in matrices.items():
            sums.add(name, matrix)
        kaldi_io.write_archive(folder / "cmvn.ark", sums.items(), folder / "cmvn.scp")


def matrices(dim: int, extra: int = 0, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        name: rng.normal(5, 2, size=(frames + extra, dim)).astype(np.float32)
        for name, frames in FRAMES.items()
    }


def test_logmel_is_normalised_by_speaker_and_has_deltas(tmp_path: Path, data: DataDir) -> None:
    stored = matrices(40)
    store(tmp_path / "feats/logmel/train", stored)
    fusion = Fusion(config(), tmp_path / "feats", data)
    assert (fusion.dim, fusion.dims) == (120, {"logmel": 120})
    found = dict(fusion)
    assert list(found) == list(SPEAKERS)
    mean = np.concatenate([stored["a-1"], stored["a-2"]]).mean(axis=0)
    np.testing.assert_allclose(found["a-1"], add_deltas(stored["a-1"] - mean), atol=1e-5)
    np.testing.assert_allclose(found["b-1"][:, :40].mean(axis=0), 0, atol=1e-5)
    assert found["b-1"].dtype == np.float32


def test_variance_normalisation_and_none(tmp_path: Path, data: DataDir) -> None:
    stored = matrices(40)
    store(tmp_path / "feats/logmel/train", stored)
    unit = Fusion(config(normalise="speaker-mean-variance"), tmp_path / "feats", data)
    np.testing.assert_allclose(unit["b-1"][:, :40].std(axis=0), 1, atol=1e-4)
    raw = Fusion(config(normalise="none"), tmp_path / "feats", data)
    np.testing.assert_array_equal(raw["b-1"][:, :40], stored["b-1"])


@pytest.mark.parametrize("order", [["fmllr", "logmel"], ["logmel", "fmllr"]])
def test_streams_stand_in_the_order_of_the_config(
    tmp_path: Path, data: DataDir, order: list[str]
) -> None:
    store(tmp_path / "feats/logmel/train", matrices(40))
    fmllr = matrices(7, extra=1, seed=1)  # one frame more: cut to the shorter
    store(tmp_path / "feats/fmllr/train", fmllr, statistics=False)
    fusion = Fusion(config(input=order), tmp_path / "feats", data)
    fused = fusion["a-2"]
    assert fused.shape == (9, 127) and fusion.dim == 127
    place = slice(0, 7) if order[0] == "fmllr" else slice(120, 127)
    np.testing.assert_array_equal(fused[:, place], fmllr["a-2"][:9])


def test_two_frames_more_are_an_error_that_names_the_utterance(
    tmp_path: Path, data: DataDir
) -> None:
    store(tmp_path / "feats/logmel/train", matrices(40))
    store(tmp_path / "feats/fmllr/train", matrices(7, extra=2), statistics=False)
    fusion = Fusion(config(input=["fmllr", "logmel"]), tmp_path / "feats", data)
    with pytest.raises(UserError, match=r"utterance b-1: .*fmllr has 32, logmel has 30"):
        fusion["b-1"]


def test_a_missing_stream_and_missing_utterances(tmp_path: Path, data: DataDir) -> None:
    with pytest.raises(UserError, match=r"feats.scp: no such file.*hadpsgd features"):
        Fusion(config(), tmp_path / "feats", data)
    stored = matrices(40)
    del stored["a-2"]
    store(tmp_path / "feats/logmel/train", stored)
    with pytest.raises(UserError, match="1 of 3 utterances have no features: a-2"):
        Fusion(config(), tmp_path / "feats", data)
    fusion = Fusion(config(max_skipped=0.5), tmp_path / "feats", data)
    assert (fusion.utterances, fusion.missing) == (["a-1", "b-1"], ["a-2"])


def test_features_that_do_not_fit_the_config(tmp_path: Path, data: DataDir) -> None:
    store(tmp_path / "feats/logmel/train", matrices(120))
    fusion = Fusion(config(), tmp_path / "feats", data)
    with pytest.raises(UserError, match="utterance a-1: 120 features a frame"):
        fusion["a-1"]
    store(tmp_path / "feats/logmel/train", matrices(40))
    fmllr = matrices(7)
    fmllr["b-1"] = fmllr["b-1"][:, :5]
    store(tmp_path / "feats/fmllr/train", fmllr, statistics=False)
    fusion = Fusion(config(input=["logmel", "fmllr"]), tmp_path / "feats", data)
    with pytest.raises(UserError, match="utterance b-1: fmllr has 5 features a frame, and 7"):
        list(fusion)


def test_a_speaker_without_statistics(tmp_path: Path, data: DataDir) -> None:
    folder = tmp_path / "feats/logmel/train"
    store(folder, matrices(40))
    lines = (folder / "cmvn.scp").read_text().splitlines(keepends=True)
    (folder / "cmvn.scp").write_text(lines[0])
    with pytest.raises(UserError, match="utterance b-1: no CMVN statistics for speaker b"):
        list(Fusion(config(), tmp_path / "feats", data))


def test_ivectors_are_scaled(tmp_path: Path, data: DataDir) -> None:
    store(tmp_path / "feats/logmel/train", matrices(40))
    folder = tmp_path / "feats/ivector/train"
    folder.mkdir(parents=True)
    vectors = {"a": np.array([4, -2], np.float32), "b": np.array([0, 8], np.float32)}
    kaldi_io.write_archive(
        folder / "ivectors_spk.ark", vectors.items(), folder / "ivectors_spk.scp"
    )
    streams = ["ivector", "logmel"]
    plain = Fusion(config(input=streams), tmp_path / "feats", data)
    scaled = Fusion(config(input=streams, ivector_scale=0.25), tmp_path / "feats", data)
    for name, speaker in SPEAKERS.items():
        np.testing.assert_array_equal(
            plain[name][:, :2], np.tile(vectors[speaker], (FRAMES[name], 1))
        )
        np.testing.assert_array_equal(scaled[name][:, :2], plain[name][:, :2] / 4)
        np.testing.assert_array_equal(scaled[name][:, 2:], plain[name][:, 2:])
        assert scaled[name].dtype == np.float32
