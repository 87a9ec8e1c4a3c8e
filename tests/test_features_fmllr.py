"""FMLLR transforms of Kaldi applied: Kaldi's own features come out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hadpsgd import kaldi_io
from hadpsgd.cli import main
from hadpsgd.errors import UserError
from hadpsgd.features.fmllr import read_transforms, transform


@pytest.fixture
def an4(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(shared / "kaldi_an4")
    (tmp_path / "c.yaml").write_text("name: t\ncorpus: {kind: an4}\n")
    return shared.resolve() / "kaldi_an4"


def run(tmp_path: Path, trans: str) -> int:
    arguments = ["--config", f"{tmp_path}/c.yaml", "--data", "data/test", "--feats", "data/test"]
    return main(["fmllr-apply", *arguments, "--model", "exp/tri3b", "--trans", trans,
                 "--out", f"{tmp_path}/out"])  # fmt: skip


def test_features_equal_kaldis(an4: Path, tmp_path: Path) -> None:
    assert run(tmp_path, "exp/tri3b_decode_test") == 0
    found = kaldi_io.Scp(tmp_path / "out/feats.scp")
    assert len(found) == 130
    golden = dict(kaldi_io.iterate(an4 / "golden/fmllr40_test20.ark.gz"))
    assert len(golden) == 20
    for utterance, expected in golden.items():
        assert found[utterance].shape == expected.shape
        np.testing.assert_allclose(found[utterance], expected, atol=1e-3)


def test_a_speaker_without_a_transform_is_named(
    an4: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert an4.is_dir() and run(tmp_path, "exp/tri3b_decode_test/trans.1") == 2
    assert "no FMLLR transform" in capsys.readouterr().err
    assert not (tmp_path / "out/feats.scp").exists()
    assert run(tmp_path, "exp/tri3b_decode_test/num_jobs") == 2
    assert run(tmp_path, "exp/ivector") == 2
    assert "no transforms (trans.1" in capsys.readouterr().err


def test_transforms_by_scp_and_twice(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    items = [(name, rng.normal(size=(3, 4)).astype(np.float32)) for name in ("a", "b")]
    for number in (1, 2):
        kaldi_io.write_archive(tmp_path / f"trans.{number}", items, tmp_path / f"{number}.scp")
    by_scp = read_transforms(tmp_path / "1.scp")
    np.testing.assert_array_equal(by_scp["b"], items[1][1])
    with pytest.raises(UserError, match=r"trans.2: speaker a is there twice"):
        read_transforms(tmp_path)
    features = rng.normal(size=(5, 3)).astype(np.float32)
    extended = np.concatenate([features, np.ones((5, 1), np.float32)], axis=1)
    matrix = items[0][1]
    np.testing.assert_allclose(transform(features, matrix), extended @ matrix.T, rtol=1e-5)
    with pytest.raises(UserError, match="features of 2 dimensions and a transform of 3 x 4"):
        transform(features[:, :2], matrix)
