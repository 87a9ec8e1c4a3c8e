"""`hadpsgd export` of networks on features of Kaldi's: on AN4, with its GMM and its extractor."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hadpsgd import kaldi_io
from hadpsgd.cli import main
from hadpsgd.config import load, run_key
from hadpsgd.decoding.network import read_data
from hadpsgd.features.ivector.stream import IvectorStream
from hadpsgd.graph.transitions import Transitions
from hadpsgd.models.blstm import BLSTM
from hadpsgd.models.build import ModelMeta, SavedShape, save_model
from hadpsgd.scoring.bundle.bundle import Bundle
from hadpsgd.scoring.bundle.imported import difference
from hadpsgd.scoring.transcribe import recognise
from hadpsgd.scoring.transcribe.recognise import Recogniser

SPEAKERS = ("menk", "mjwl")
KEY = "single"
PDFS = 424


def settings(kaldi: Path, results: Path, **changed: Any) -> dict[str, Any]:
    """Transforms, MFCC and i-vectors of Kaldi's."""
    ivector = {"ivectors": str(kaldi / "exp/ivector/ivectors_test.ark"), "per": "speaker"}
    imports = {
        "mfcc": {"feats": str(kaldi / "data/test/feats.scp")},
        "fmllr": {"trans": str(kaldi / "exp/tri3b_decode_test"), "model": str(kaldi / "exp/tri3b")},
        "ivector": ivector | {"extractor": str(kaldi / "exp/ivector")},
    }
    for name in changed.pop("without", ()):
        del imports["ivector"][name]
    lang = {"ali_dir": str(kaldi / "exp/tri3b_ali"), "lang_dir": str(kaldi / "lang")}
    return {
        "name": "kaldis",
        "results": str(results),
        "corpus": {"kind": "an4"},
        "alignment": {"kind": "kaldi"} | lang,
        "features": {"input": ["fmllr", "ivector"], "imports": imports} | changed,
    }


@pytest.fixture(scope="module")
def kaldi(shared: Path) -> Path:
    return shared.resolve() / "kaldi_an4"


@pytest.fixture(scope="module")
def trained(kaldi: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder; its network has seen nothing, its features are Kaldi's."""
    results = tmp_path_factory.mktemp("results")
    out = results / "kaldis"
    run, data = out / "runs" / KEY, out / "corpus/data/dev"
    for folder in (run, data, out / "score" / KEY):
        folder.mkdir(parents=True)
    names = sorted(
        path.stem for path in (kaldi / "wav8k").glob("*") if path.stem.startswith(SPEAKERS)
    )
    (data / "wav.scp").write_text("".join(f"{n} {kaldi}/wav8k/{n}.wav\n" for n in names))
    (data / "utt2spk").write_text("".join(f"{n} {n.split('-')[0]}\n" for n in names))
    write_config(kaldi, run, results)
    for stream in ("mfcc", "ivector"):
        words = ["import-features", "--config", run / "config.yaml", "--stream", stream]
        words += ["--data", data, "--out", out / "feats" / stream / "dev"]
        assert main([str(word) for word in words]) == 0
    graph = ["--lang", kaldi / "lang", "--ali", kaldi / "exp/tri3b", "--g", kaldi / "lang/G.fst"]
    words = ["graph", "--config", run / "config.yaml", *graph, "--out", out / "graph"]
    assert main([str(word) for word in words]) == 0
    shape = SavedShape(layers=1, cells=8, projection=8, dropout=0.0)
    model = BLSTM(shape, input_dim=140, num_pdfs=PDFS, seed=1)
    priors = torch.full((PDFS,), -np.log(PDFS), dtype=torch.float32)
    meta = ModelMeta(shape, 140, ("fmllr", "ivector"), PDFS, priors)
    save_model(run / "final.pt", model, meta)
    (out / "score" / KEY / "tuned.json").write_text('{"lm_weight": 10, "word_penalty": 0.0}')
    return run


def write_config(kaldi: Path, run: Path, results: Path, **changed: Any) -> None:
    (run / "config.yaml").write_text(json.dumps(settings(kaldi, results, **changed)))


def test_a_run_of_former_settings_is_told(
    kaldi: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once the workflow was started with others, both folders lie in runs/."""
    last = trained.parents[1] / "config.yaml"  # of the last start
    last.write_text(json.dumps(settings(kaldi, trained.parents[2])))
    now = load(last)
    present = [run_key(now, run.id) for run in now.training.members]
    for key, told in ((KEY, True), (present[0], False)):
        run = trained.parent / key
        if not run.exists():
            shutil.copytree(trained, run)
            shutil.copytree(trained.parents[1] / "score" / KEY, trained.parents[1] / "score" / key)
        assert main(["export", str(run), "--out", str(tmp_path / key)]) == 0
        line = f"{key} is of other settings than the runs of the last start: {present[0]}"
        assert (line in capsys.readouterr().err.splitlines()) == told
    last.unlink()


class ReachedError(Exception):
    """The network's search would begin; one that has learnt nothing makes it long."""


def test_a_bundle_computes_kaldis_features(
    kaldi: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of audio: i-vectors as Kaldi's, transforms estimated with Kaldi's model."""

    def stop(**_: object) -> None:
        raise ReachedError

    assert main(["export", str(trained), "--out", str(tmp_path / "bundle")]) == 0
    bundle = Bundle.open(tmp_path / "bundle")
    assert {"gmm/final.alimdl", "gmm/final.mdl", "ivector/final.ie"} <= bundle.manifest.files.keys()
    assert str(kaldi) not in (tmp_path / "bundle/config.yaml").read_text()
    data = trained.parents[1] / "corpus/data/dev"
    work = tmp_path / "work"
    monkeypatch.setattr(recognise, "NetworkScorer", stop)
    with pytest.raises(ReachedError):
        list(Recogniser(bundle=bundle)(data, work, lambda *_: None))
    speaker_of = {name: name.split("-")[0] for name in read_data(data).utterances}
    given = IvectorStream(data.parents[2] / "feats/ivector/dev", bundle.config.features, speaker_of)
    computed = IvectorStream(work / "feats/ivector/dev", bundle.config.features, speaker_of)
    pairs = [(computed.read(name, 1)[0], given.read(name, 1)[0]) for name in speaker_of]
    assert difference(pairs, centred=False) < 0.05
    theirs = dict(kaldi_io.iterate(str(kaldi / "exp/tri3b_decode_test/trans.1"), "matrix"))
    theirs |= dict(kaldi_io.iterate(str(kaldi / "exp/tri3b_decode_test/trans.2"), "matrix"))
    ours = dict(kaldi_io.iterate(str(work / "trans2/trans.1"), "matrix"))
    for speaker in SPEAKERS:
        adapts = np.linalg.norm(theirs[speaker] - np.eye(40, 41))
        assert np.linalg.norm(ours[speaker] - theirs[speaker]) < 0.2 * adapts


def test_what_is_not_kaldis_is_refused(
    kaldi: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, results = tmp_path / "out", trained.parents[2]

    def refused(*more: str) -> str:
        capsys.readouterr()
        assert main(["export", str(trained), "--out", str(out), *more]) == 2 and not out.exists()
        told = capsys.readouterr().err
        assert told.count("\n") == 1
        return told

    write_config(kaldi, trained, results, without=["extractor"])
    assert "imports.ivector: a new speaker has no i-vector" in refused()
    assert "imports.ivector: what features.ivector" in refused(
        "--extractor", other(kaldi, tmp_path)
    )
    assert "splice_opts: no such file" in refused("--extractor", str(tmp_path))
    write_config(kaldi, trained, results, mfcc={"bins": 15})
    assert "imports.mfcc: what features.mfcc computes of dev's audio" in refused()
    write_config(kaldi, trained, results)
    kept = trained.parents[1] / "graph/transitions.npz"
    content = kept.read_bytes()
    found = Transitions.read(kept)
    others = np.append(found.pdf[:1], found.pdf[:0:-1])
    Transitions(others, found.phone, found.final, found.loop).write(kept)
    assert "has other states than the graph" in refused()
    kept.write_bytes(content)
    write_config(kaldi, trained, results, without=["extractor"])
    assert (
        main(["export", str(trained), "--out", str(out), "--extractor", str(kaldi / "exp/ivector")])
        == 0
    )
    assert load(out / "config.yaml").features.ivector.per == "speaker"
    write_config(kaldi, trained, results)


def other(kaldi: Path, folder: Path) -> str:
    """An extractor whose splicing is another one's."""
    copied = Path(shutil.copytree(kaldi / "exp/ivector", folder / "other"))
    matrix = kaldi_io.read(copied / "lda_mllt.mat").copy()
    (copied / "lda_mllt.mat").chmod(0o644)
    kaldi_io.write(copied / "lda_mllt.mat", matrix[:, ::-1].copy())
    return str(copied)
