"""The report of speaker adaptation: determinants, i-vectors by speaker and gender."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hadpsgd import kaldi_io
from hadpsgd.cli import main
from hadpsgd.errors import UserError
from hadpsgd.features import views


def test_report_of_an4(shared: Path, tmp_path: Path) -> None:
    kaldi, out = shared.resolve() / "kaldi_an4", tmp_path / "out"
    arguments = ["--data", kaldi / "data/test", "--trans", kaldi / "exp/tri3b_decode_test",
                 "--ivectors", kaldi / "exp/ivector/ivectors_test.ark", "--out", out]  # fmt: skip
    assert main(["adaptation-report", *map(str, arguments)]) == 0
    report = json.loads((out / "adaptation.json").read_text())
    assert len(report["log_determinants"]) == report["ivectors"] == 10
    job = dict(kaldi_io.iterate(kaldi / "exp/tri3b_decode_test/trans.1"))
    for speaker, matrix in job.items():
        expected = np.log(abs(np.linalg.det(matrix[:, :40].astype(float))))
        assert report["log_determinants"][speaker] == pytest.approx(expected, abs=1e-3)
    assert report["variance_between_speakers"] is None  # one i-vector each
    assert 0 < report["variance_between_genders"] < 1
    for name in ("log_determinants", "ivectors"):
        assert (out / f"{name}.png").read_bytes()[:4] == b"\x89PNG"


def test_wrong_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "utt2spk").write_text("a s\nb s\n")
    base = ["adaptation-report", "--data", f"{tmp_path}", "--out", f"{tmp_path}/out"]
    assert main(base) == 2
    assert "nothing to report" in capsys.readouterr().err
    assert main([*base, "--ivectors", f"{tmp_path}/none.ark"]) == 2
    assert "none.ark: no such file" in capsys.readouterr().err
    kaldi_io.write_archive(tmp_path / "trans.1", [("s", np.ones((2, 2), np.float32))])
    assert main([*base, "--trans", str(tmp_path)]) == 2
    assert "speaker s: a transform of 2 x 2" in capsys.readouterr().err
    sizes = [("a", np.ones(2, np.float32)), ("b", np.ones(3, np.float32))]
    kaldi_io.write_archive(tmp_path / "iv.ark", sizes)
    with pytest.raises(UserError, match="of different sizes"):
        views.read_ivectors(tmp_path / "iv.ark")


def test_online_ivectors_are_averaged(tmp_path: Path) -> None:
    frames = np.arange(6, dtype=np.float32).reshape(3, 2)
    folder = tmp_path / "iv"
    kaldi_io.write_archive(folder / "online.ark", [("a", frames)], folder / "ivector_online.scp")
    np.testing.assert_allclose(views.read_ivectors(folder)["a"], [2, 3])


def test_plane_and_shares_of_variance() -> None:
    rng = np.random.default_rng(0)
    clean = rng.normal(size=(500, 2)) * [5, 2]
    turned = np.linalg.qr(rng.normal(size=(6, 6)))[0][:2]
    points, shares = views.plane(clean @ turned + 3)
    assert shares.sum() == pytest.approx(1) and shares[0] == pytest.approx(25 / 29, abs=0.05)
    np.testing.assert_allclose((points**2).sum(), ((clean - clean.mean(0)) ** 2).sum())
    vectors = {f"{group}{n}": np.array([float(group == "b"), 0.0]) + 0.5 * (-1) ** n
               for group in "ab" for n in range(2)}  # fmt: skip
    # half the total square lies between a and b in one of two dimensions: 1 of 1 + 2
    groups = {name: name[0] for name in vectors}
    assert views.spread(vectors, groups) == pytest.approx(1 / 3)
    assert views.spread(vectors, dict.fromkeys(vectors, "a")) is None
