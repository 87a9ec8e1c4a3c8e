"""Kaldi's features, transforms and i-vectors in place of our own stages."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hadpsgd import kaldi_io
from hadpsgd.cli import main
from hadpsgd.config import load
from hadpsgd.config.imports import IvectorImport
from hadpsgd.corpus.datadir import DataDir
from hadpsgd.errors import UserError
from hadpsgd.features.fusion import Fusion
from hadpsgd.features.importing import import_ivectors


@pytest.fixture
def an4(shared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(shared / "kaldi_an4")
    return shared.resolve() / "kaldi_an4"


def run(tmp_path: Path, stream: str, imports: dict[str, object], *more: str, **features: object
        ) -> int:  # fmt: skip
    config = {"name": "t", "corpus": {"kind": "an4"},
              "features": {"imports": imports, "logmel": {"bins": 13}} | features}  # fmt: skip
    (tmp_path / "c.yaml").write_text(json.dumps(config))
    return main(["import-features", "--config", f"{tmp_path}/c.yaml", "--stream", stream, "--data",
                 "data/test", "--out", f"{tmp_path}/feats/{stream}/test", *more])  # fmt: skip


def fused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fusion:
    data = DataDir.read(Path("data/test").resolve(), audio=False, text=False)
    monkeypatch.chdir("/")  # nothing depends on the folder of the import
    return Fusion(load(tmp_path / "c.yaml"), tmp_path / "feats", data)


def test_all_streams_from_kaldi(an4: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imports = {
        "logmel": {"feats": "data/{set}/feats.scp", "cmvn": "data/{set}/cmvn.scp"},
        "fmllr": {"trans": "exp/tri3b_decode_{set}", "model": "exp/tri3b"},
        "ivector": {"ivectors": "exp/ivector/ivectors_{set}.ark", "per": "speaker"},
    }
    order = {"input": ["fmllr", "ivector", "logmel"]}
    for stream in imports:
        assert run(tmp_path, stream, imports, "--feats", "data/test", **order) == 0  # type: ignore[arg-type]
    fusion = fused(tmp_path, monkeypatch)
    assert fusion.dims == {"fmllr": 40, "ivector": 100, "logmel": 39}
    matrix = fusion["fcaw-an406-fcaw-b"]
    golden = dict(kaldi_io.iterate(an4 / "golden/fmllr40_test20.ark.gz"))
    np.testing.assert_allclose(matrix[:, :40], golden["fcaw-an406-fcaw-b"], atol=1e-3)
    vectors = dict(kaldi_io.iterate(an4 / "exp/ivector/ivectors_test.ark", "vector"))
    np.testing.assert_array_equal(matrix[0, 40:140], vectors["fcaw"])
    monkeypatch.chdir(an4)
    stored = kaldi_io.Scp("data/test/feats.scp")["fcaw-an406-fcaw-b"]
    stats = kaldi_io.Scp("data/test/cmvn.scp")["fcaw"]
    np.testing.assert_allclose(matrix[:, 140:153], stored - stats[0, :-1] / stats[0, -1], atol=1e-4)
    assert not list(tmp_path.glob("feats/logmel/test/*.ark"))  # nothing is copied


def test_several_sources_are_taken_together(
    an4: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del an4
    folders = ["exp/tri3b_ali", "exp/tri3b_decode_test"]
    vectors = [f"exp/ivector/ivectors_{name}.ark" for name in ("train", "test")]
    imports: dict[str, object] = {
        "fmllr": {"trans": folders, "model": "exp/tri3b"},
        "ivector": {"ivectors": vectors, "per": "speaker"},
    }
    assert run(tmp_path, "fmllr", imports, "--feats", "data/test") == 0
    assert run(tmp_path, "ivector", imports) == 0
    assert len(kaldi_io.Scp(tmp_path / "feats/ivector/test/ivectors_spk.scp", "vector")) == 10
    imports["fmllr"] = {"trans": [folders[1]] * 2, "model": "exp/tri3b"}
    imports["ivector"] = {"ivectors": [vectors[1]] * 2, "per": "speaker"}
    for stream in imports:
        assert run(tmp_path, stream, imports, "--feats", "data/test") == 2
        assert "is there twice" in capsys.readouterr().err


def test_statistics_are_computed_where_kaldi_left_none(an4: Path, tmp_path: Path) -> None:
    assert run(tmp_path, "logmel", {"logmel": {"feats": "data/{set}/feats.scp"}}) == 0
    for speaker, stats in kaldi_io.iterate(tmp_path / "feats/logmel/test/cmvn.scp"):
        expected = kaldi_io.Scp(an4 / "data/test/cmvn.scp")[speaker]
        np.testing.assert_allclose(stats, expected, rtol=1e-4, atol=1.0)


def test_ranges_and_pipes(an4: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (an4 / "data/test/feats.scp").read_text().splitlines()
    ranged = tmp_path / "ranged.scp"
    ranged.write_text("".join(f"{line}[10:59]\n" for line in lines))
    assert run(tmp_path, "logmel", {"logmel": {"feats": str(ranged)}}) == 0
    key, place = lines[0].split(" ")
    found = kaldi_io.Scp(tmp_path / "feats/logmel/test/feats.scp")[key]
    np.testing.assert_array_equal(found, kaldi_io.read(place)[10:60])

    archive = tmp_path / "one.mat"
    kaldi_io.write(archive, kaldi_io.read(place))
    piped = tmp_path / "piped.scp"
    piped.write_text("".join(f"{line.split(' ')[0]} cat {archive} |\n" for line in lines))
    assert run(tmp_path, "logmel", {"logmel": {"feats": str(piped)}}) == 2
    assert "not allowed" in capsys.readouterr().err
    assert run(tmp_path, "logmel", {"logmel": {"feats": str(piped)}}, allow_pipes=True) == 0
    copied = kaldi_io.Scp(tmp_path / "feats/logmel/test/feats.scp")
    assert len(copied) == 130 and "|" not in str(copied.entries)
    np.testing.assert_array_equal(copied[key], kaldi_io.read(place))


def test_online_ivectors_with_their_period(
    an4: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = {k: len(m) for k, m in kaldi_io.iterate(an4 / "data/test/feats.scp")}
    rng = np.random.default_rng(0)
    vectors = {k: rng.normal(size=(-(-n // 7), 5)).astype(np.float32) for k, n in frames.items()}
    kaldi_io.write_archive(tmp_path / "iv.ark", vectors.items(), tmp_path / "ivector_online.scp")
    imports = {"logmel": {"feats": "data/{set}/feats.scp"},
               "ivector": {"ivectors": f"{tmp_path}/ivector_online.scp", "period": 7}}  # fmt: skip
    order = {"input": ["ivector", "logmel"]}
    for stream in imports:
        assert run(tmp_path, stream, imports, **order) == 0  # type: ignore[arg-type]
    key = "fcaw-an407-fcaw-b"
    matrix = fused(tmp_path, monkeypatch)[key]
    np.testing.assert_array_equal(matrix[:, :5], np.repeat(vectors[key], 7, axis=0)[: frames[key]])


def test_what_does_not_fit_is_one_line(
    an4: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(stream: str, **options: object) -> str:
        assert run(tmp_path, stream, {stream: options}) == 2
        return capsys.readouterr().err

    assert "130 of 130 utterances are not there" in refused("logmel", feats="data/train/feats.scp")
    error = refused("logmel", feats="data/test/feats.scp", cmvn="data/train/cmvn.scp")
    assert "10 of 10 speakers are not there: fcaw" in error
    cut = tmp_path / "cut.ark"
    cut.write_bytes((an4 / "mfcc/mfcc_test.ark").read_bytes()[:100_000])
    assert "the file ends in the middle" in refused("logmel", feats=str(cut))
    values = np.ones((50, 40), np.float32)
    values[20, 3] = np.nan
    name = next(iter(kaldi_io.read_scp(Path("data/test/feats.scp"))))
    kaldi_io.write_archive(tmp_path / "nan.ark", [(name, values)], tmp_path / "nan.scp")
    told = f"{tmp_path}/nan.scp: {name} has a value that is not a finite number"
    assert told in refused("logmel", feats=str(tmp_path / "nan.scp"))
    assert "is there twice" in refused("ivector", ivectors=str(twice(tmp_path)), per="speaker")
    assert "give feats, or trans and model" in refused("fmllr", trans="exp/tri3b_ali")
    assert run(tmp_path, "mfcc", {}) == 2
    assert "features.imports.mfcc is not set" in capsys.readouterr().err


def twice(tmp_path: Path) -> Path:
    vector = np.zeros(3, np.float32)
    kaldi_io.write_archive(tmp_path / "twice.ark", [("fcaw", vector), ("fcaw", vector)])
    return tmp_path / "twice.ark"


@pytest.mark.parametrize(("per", "lacking"), [("speaker", 0), ("utterance", 0), ("online", 1)])
def test_ivectors_of_speech_at_another_speed(per: str, lacking: int, tmp_path: Path) -> None:
    """A vector of the original serves it; vectors that follow the frames do not."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "utt2spk").write_text("a-1 a\nsp0.9-a-1 sp0.9-a\n")
    name = "a" if per == "speaker" else "a-1"
    values = np.zeros((3, 4) if per == "online" else 4, np.float32)
    kaldi_io.write_archive(tmp_path / "iv.ark", [(name, values)], tmp_path / "iv.scp")
    options = IvectorImport(ivectors=[f"{tmp_path}/iv.scp"], per=per)  # type: ignore[arg-type]
    found = DataDir.read(data, audio=False, text=False)
    if lacking:
        with pytest.raises(UserError, match=r"1 of 2 utterances are not there: sp0\.9-a-1"):
            import_ivectors(options, found, tmp_path / "out", 0.0)
    import_ivectors(options, found, tmp_path / "out", lacking / 2)
