"""FMLLR of test speakers from lattices, with Kaldi's model: its transforms and word errors."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hadpsgd import kaldi_io
from hadpsgd.cli import main
from hadpsgd.decoding import lattice_io
from hadpsgd.decoding.adaptation import Supervision
from hadpsgd.decoding.lattice import Scaling
from hadpsgd.errors import UserError
from hadpsgd.features.fmllr import read_transforms
from hadpsgd.gmm import model

SPEAKERS = ("menk", "mjwl")
CONFIG = {
    "name": "adapt",
    "corpus": {"kind": "an4"},
    "decoding": {"acoustic_scale": 0.0833},
}


@pytest.fixture(scope="module")
def passes(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Kaldi's folder; lattices and transforms of two passes over two speakers."""
    kaldi, folder = shared.resolve() / "kaldi_an4", tmp_path_factory.mktemp("adapt")
    data = folder / "data"
    data.mkdir()
    rows = [line.split(" ", 1) for line in (kaldi / "data/test/text").read_text().splitlines()]
    text = {name: words for name, words in rows if name.startswith(SPEAKERS)}
    (data / "text").write_text("".join(f"{name} {words}\n" for name, words in text.items()))
    (data / "utt2spk").write_text("".join(f"{name} {name.split('-')[0]}\n" for name in text))
    (data / "wav.scp").write_text("".join(f"{name} {name}.wav\n" for name in text))
    for kind, keys in (("feats", text), ("cmvn", SPEAKERS)):
        scp = kaldi_io.Scp(kaldi / f"data/test/{kind}.scp")
        pairs = [(key, scp[key]) for key in keys]
        kaldi_io.write_archive(data / f"{kind}.ark", pairs, data / f"{kind}.scp")
    config = folder / "config.yaml"
    config.write_text(json.dumps(CONFIG))
    run("graph", "--config", config, "--lang", kaldi / "lang", "--ali", kaldi / "exp/tri3b",
        "--g", kaldi / "lang/G.fst", "--out", folder / "graph")  # fmt: skip
    common = ("--config", config, "--model", kaldi / "exp/tri3b", "--data", data, "--feats", data)
    adapt = ("adapt", *common, "--lang", kaldi / "lang")
    decode = ("decode-gmm", *common, "--graph", folder / "graph")
    run(*decode, "--out", folder / "first")
    run(*adapt, "--lattices", folder / "first", "--out", folder / "t1")
    run(*decode, "--trans", folder / "t1", "--out", folder / "second")
    run(*adapt, "--lattices", folder / "second", "--trans", folder / "t1", "--out", folder / "t2")
    return kaldi, folder


def run(*words: object) -> None:
    assert main([str(word) for word in words]) == 0


def apart(ours: Path, theirs: Path) -> list[float]:
    """Relative distance of the transforms of each speaker."""
    mine, kaldis = read_transforms(ours), read_transforms(theirs)
    assert set(mine) == set(SPEAKERS)
    return [
        float(np.linalg.norm(mine[name] - kaldis[name]) / np.linalg.norm(kaldis[name]))
        for name in SPEAKERS
    ]


def test_two_passes_end_near_kaldis_transforms(passes: tuple[Path, Path]) -> None:
    """Kaldi prunes its lattices otherwise, so they cannot be equal."""
    kaldi, folder = passes
    first, second = (apart(folder / name, kaldi / "exp/tri3b_decode_test") for name in ("t1", "t2"))
    assert max(second) < 0.06
    assert all(late < early for late, early in zip(second, first, strict=True))


def test_lattices_say_how_they_were_searched(
    passes: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Posteriors are taken at that scale, which need not be the config's: a network's, say."""
    kaldi, folder = passes
    common = ("--config", folder / "config.yaml", "--model", kaldi / "exp/tri3b",
              "--data", folder / "data", "--feats", folder / "data")  # fmt: skip
    adapt = ("adapt", *common, "--lang", kaldi / "lang", "--lattices")
    lattices = tmp_path / "lattices"
    run("decode-gmm", *common, "--graph", folder / "graph", "--acoustic-scale", 0.05,
        "--out", lattices)  # fmt: skip
    run(*adapt, lattices, "--out", tmp_path / "said")
    run(*adapt, lattices, "--acoustic-scale", 0.05, "--out", tmp_path / "given")
    run(*adapt, lattices, "--acoustic-scale", 0.0833, "--out", tmp_path / "other")
    report = lattices / "decode.json"
    kept = report.read_text()
    report.write_text(kept.replace('"acoustic_scale": 0.05', '"acoustic_scale": NaN'))
    damaged = [*adapt, lattices, "--out", tmp_path / "damaged"]
    assert main([str(word) for word in damaged]) == 2
    assert "decode.json: damaged (acoustic_scale nan)" in capsys.readouterr().err
    report.unlink()  # as Kaldi's
    run(*adapt, lattices, "--out", tmp_path / "config")
    found = [(tmp_path / n / "trans.1").read_bytes() for n in ("said", "given", "other", "config")]
    assert found[0] == found[1] != found[2] == found[3]


def test_what_was_estimated_is_told(passes: tuple[Path, Path]) -> None:
    told = json.loads((passes[1] / "t2/adaptation.json").read_text())
    assert told["speakers"] == 2 and not told["too_little_speech"] and told["gain_a_frame"] > 0
    assert all(count > 500 for count in told["frames"].values())


def test_posteriors_of_a_frame_sum_to_one_or_the_weight_of_silence(
    passes: tuple[Path, Path],
) -> None:
    kaldi, folder = passes
    transitions = model.read(kaldi / "exp/tri3b/final.mdl").transitions
    whole = Supervision(transitions, Scaling(acoustic_scale=0.0833), ())
    some = Supervision(transitions, Scaling(acoustic_scale=0.0833), tuple(range(1, 11)), 0.25)
    _, lattice = next(lattice_io.read(folder / "second"))
    found = whole(lattice)
    sums = np.bincount(found.frames, found.weights)
    np.testing.assert_allclose(sums, 1.0, atol=0.02)  # the least ones are dropped
    weighted = np.bincount(some(lattice).frames, some(lattice).weights, len(sums))
    assert weighted.min() == pytest.approx(0.25, abs=0.02)
    assert weighted.max() == pytest.approx(1.0, abs=0.02)


def test_lattices_of_another_model_are_refused(passes: tuple[Path, Path]) -> None:
    transitions = model.read(passes[0] / "exp/tri3b/final.mdl").transitions
    _, lattice = next(lattice_io.read(passes[1] / "first"))
    assert lattice.ids is not None
    others = replace(lattice, ids=lattice.ids + transitions.num_ids)
    with pytest.raises(UserError, match="transition-id"):
        Supervision(transitions, Scaling(acoustic_scale=0.1), ())(others)


def test_copies_adapted_by_a_model_of_other_phones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kaldi's transforms, our own monophones: the line says which settings do not go together."""
    model, lang = tmp_path / "tri3b", tmp_path / "lang"
    for folder, phone in ((model, "AH_B"), (lang, "V_B")):
        folder.mkdir()
        (folder / "phones.txt").write_text(f"<eps> 0\nSIL 1\n{phone} 2\n")
    config = tmp_path / "c.yaml"
    config.write_text(
        "name: x\ncorpus: {kind: builtin, speeds: [0.9, 1.0]}\nalignment: {kind: mono}\n"
        "features:\n  input: [fmllr]\n"
        f"  imports: {{fmllr: {{trans: [{model}], model: {model}}}}}\n"
    )
    places = {"--config": config, "--model": model, "--lang": lang, "--data": tmp_path,
              "--feats": tmp_path, "--out": tmp_path / "out"}  # fmt: skip
    assert main(["align", *(str(word) for pair in places.items() for word in pair)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "phone 'AH_B' is not the same as in" in error
    assert "corpus.speeds" in error and "alignment.kind mono" in error and "egs.tempos" in error
