"""`hadpsgd export`: what a bundle holds, that it is checked, and what it takes to open it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
import yaml
from small_bundle import RUN
from small_workflow import ASYNCHRONOUS, ROOT, Small

from hadpsgd import cli
from hadpsgd.config import load
from hadpsgd.decoding.network import NetworkScorer, read_data
from hadpsgd.errors import UserError
from hadpsgd.features.fusion import Fusion
from hadpsgd.scoring.bundle.bundle import Bundle
from hadpsgd.scoring.bundle.export import Run, export
from hadpsgd.scoring.bundle.manifest import Manifest

# packages of training, tracking and the workflow, and those that make language models and graphs
ABSENT = {
    *("mlflow", "snakemake", "kaldilm", "matplotlib", "jinja2", "sentencepiece"),
    *("psutil", "filelock", "kaldialign", "espeakng_loader"),
}
ROOMS = ("training", "tracking", "egs", "reports", "planning", "rerun")
RECOGNISES = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {absent}:
            raise ModuleNotFoundError(name + " is not installed", name=name)
sys.meta_path.insert(0, Absent())
import numpy, torch
from hadpsgd.scoring.bundle.bundle import Bundle
from hadpsgd.decoding.network import log_likelihoods
from hadpsgd.decoding.search import Searcher
from hadpsgd.models.build import load_model
from hadpsgd.models.long_input import hidden
bundle = Bundle.open({folder!r})
model, meta = load_model(bundle.models[0])
states = hidden(model, torch.zeros(30, meta.input_dim))
scores = log_likelihoods(model, states, meta.log_priors).numpy()
found = Searcher(bundle.graph, bundle.config.decoding)(scores)
assert found.frames == 30 and found.lattice.num_states
print(*(name for name in sys.modules if name.startswith("hadpsgd.")))
"""
READS_LM = {"stored", "backoff", "arpa", "blocks", "contexts", "neural", "perplexity", "vocabulary"}
"""Of the room `lm`: what reads a model; nothing that trains, prunes or mixes."""
# the config's schema lists strategies by their names; nothing that trains comes with them
NAMES = {"strategies", "topology", "core"}


@pytest.fixture(scope="module")
def bundle(small: Small, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the small workflow's second run, by its key; the run's folder is not needed any more."""
    out = tmp_path_factory.mktemp("bundle") / "bundle"
    arguments = [small.key("hadpsgd-2x2"), "--results", str(small.results), "--out", str(out)]
    assert cli.main(["export", *arguments, "--licence", "CC BY 4.0"]) == 0
    return out


def refused(folder: Path) -> str:
    """Why a bundle does not open, in one line."""
    with pytest.raises(UserError) as caught:
        Bundle.open(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_bundle_says_what_it_is(small: Small, bundle: Path) -> None:
    assert ASYNCHRONOUS["learners"] == 4
    opened = Bundle.open(bundle)
    key = small.key("hadpsgd-2x2")
    tuned = json.loads((small.out / "score" / key / "tuned.json").read_text())
    assert opened.setting.lm_weight == tuned["lm_weight"]
    assert opened.setting.word_penalty == tuned["word_penalty"]
    for name in ("dev", "swb", "ch"):
        scored = json.loads((small.out / "score" / key / name / "wer.json").read_text())
        told = opened.manifest.scores[name]
        assert (told.words, told.errors, told.wer) == tuple(
            scored[field] for field in ("words", "errors", "wer")
        )
    trained = json.loads((small.out / "runs" / key / "provenance.json").read_text())
    assert opened.manifest.trained_with["commit"] == trained["code"]["commit"]
    assert opened.manifest.trained_with["torch"] == trained["packages"]["torch"]
    assert opened.manifest.licence == "CC BY 4.0" and opened.manifest.run == key
    config = load(small.config)
    assert opened.config.features.logmel == config.features.logmel
    assert opened.config.decoding.beam == config.decoding.beam
    # nothing but what the manifest lists, and no path of the machine that made it
    files = {p.relative_to(bundle).as_posix() for p in bundle.rglob("*") if p.is_file()}
    assert files == {*opened.manifest.files, "bundle.json"}
    for name in ("bundle.json", "config.yaml"):
        assert str(small.folder) not in (bundle / name).read_text()


def test_a_broken_bundle_is_refused_in_one_line(bundle: Path, tmp_path: Path) -> None:
    def copied(name: str) -> Path:
        return Path(shutil.copytree(bundle, tmp_path / name))

    changed = copied("changed") / "graph" / "HCLG.fst"
    content = bytearray(changed.read_bytes())
    content[-1] ^= 1
    changed.write_bytes(content)
    assert "HCLG.fst: damaged" in refused(tmp_path / "changed")

    short = copied("short") / "final.pt"
    short.write_bytes(short.read_bytes()[:-1])
    assert "final.pt: damaged" in refused(tmp_path / "short")

    (copied("lacking") / "graph" / "words.txt").unlink()
    assert "words.txt: missing" in refused(tmp_path / "lacking")

    assert "no bundle.json" in refused(tmp_path / "nowhere")
    assert "no bundle.json" in refused(bundle / "bundle.json")

    manifest = copied("manifest") / "bundle.json"
    good = json.loads(manifest.read_text())
    assert good["format"] == 1
    for bad, said in (
        (good | {"format": 3}, "format 3, and this version reads 1 and 2"),
        ([1], "format None"),
        (good | {"lm_weight": 0}, "'lm_weight'"),
        (good | {"lm_weight": 1e30}, "'lm_weight'"),
        (good | {"word_penalty": -1e300}, "'word_penalty'"),
        (good | {"sample_rate": -1}, "'sample_rate'"),
        (good | {"sample_rate": 16000}, "sample_rate 16000, and config.yaml has 8000"),
        (good | {"streams": ["mfcc"]}, "streams ['mfcc'], and config.yaml has "),
        (good | {"colour": "red"}, "'colour'"),
        (good | {"files": {"../x": {"bytes": 0, "sha256": ""}}}, "outside of it"),
        (good | {"files": {}}, "without config.yaml"),
    ):
        manifest.write_text(json.dumps(bad))
        assert said in refused(tmp_path / "manifest")
    manifest.write_text(manifest.read_text()[:-5])
    assert "damaged" in refused(tmp_path / "manifest")


class Touch:
    """Unpickled, it makes a file: what a network of a stranger could do."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_strangers_network_runs_no_code(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the checksums are those of the changed file."""
    folder, made = Path(shutil.copytree(bundle, tmp_path / "changed")), tmp_path / "made"
    torch.save(Touch(made), folder / "final.pt")
    with pytest.raises(Exception, match="weights"):  # as torch says it
        torch.load(folder / "final.pt", weights_only=True)
    torch.load(folder / "final.pt", weights_only=False)
    assert made.exists()  # it would run, were it unpickled
    made.unlink()
    manifest = Manifest.read(folder)
    (folder / "bundle.json").unlink()
    manifest.write(folder)
    Bundle.open(folder)
    soundfile.write(tmp_path / "silence.wav", np.zeros(800), 8000)
    assert cli.main(["transcribe", str(folder), str(tmp_path / "silence.wav")]) == 2
    told = capsys.readouterr().err
    assert "final.pt: not a trained model" in told and told.count("\n") == 1
    assert not made.exists()


def test_the_onnx_file_scores_as_the_network(small: Small, tmp_path: Path) -> None:
    """On the features of a test set, by another runtime; alone and side by side."""
    runtime = pytest.importorskip("onnxruntime")
    key, out = small.key("hadpsgd-2x2"), tmp_path / "bundle"
    arguments = [key, "--results", str(small.results), "--out", str(out), "--onnx"]
    assert cli.main(["export", *arguments]) == 0
    opened = Bundle.open(out)
    assert "final.onnx" in opened.manifest.files
    session = runtime.InferenceSession(out / "final.onnx")
    about = session.get_modelmeta().custom_metadata_map
    assert about["run"] == key and about["streams"] == "logmel" and about["sample_rate"] == "8000"
    assert float(about["lm_weight"]) == opened.setting.lm_weight
    data, feats = small.out / "corpus/data/swb", small.out / "feats"
    scorer = NetworkScorer(config=opened.config, models=opened.models, data=data, streams=feats)
    score, fusion = scorer(), Fusion(opened.config, feats, read_data(data))
    alone = []
    for utterance in fusion.utterances:
        expected = score(utterance)[:]
        (found,) = session.run(["log_likelihoods"], {"features": fusion[utterance][None]})
        assert found.shape == (1, *expected.shape) and expected.std() > 0.5
        np.testing.assert_allclose(found[0], expected, rtol=0, atol=1e-4)
        alone.append(fusion[utterance])
    frames = min(map(len, alone))
    beside = np.stack([features[:frames] for features in alone])
    (together,) = session.run(None, {"features": beside})
    for found, features in zip(together, beside, strict=True):
        (expected,) = session.run(None, {"features": features[None]})
        np.testing.assert_allclose(found, expected[0], rtol=0, atol=1e-4)


def test_its_settings_are_those_of_the_scores(small: Small, tmp_path: Path) -> None:
    """The run was trained with other ones, and its config has those."""
    results = small.scored_again(RUN, tmp_path, filters=["[a-m].*"])
    folder = results / f"small/runs/{small.key(RUN)}"
    assert cli.main(["export", str(folder), "--out", str(tmp_path / "bundle")]) == 0
    assert load(folder / "config.yaml").scoring.filters == []
    assert load(tmp_path / "bundle/config.yaml").scoring.filters == ["[a-m].*"]
    scores = {name: score.wer for name, score in Manifest.read(tmp_path / "bundle").scores.items()}
    said = (results / f"small/score/{small.key(RUN)}/swb/wer.json").read_text()
    assert scores["swb"] == json.loads(said)["wer"]


def test_what_is_no_bundle_is_not_replaced(
    small: Small, bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    folder = str(small.out / "runs" / small.key("hadpsgd-2x2"))
    assert cli.main(["export", folder, "--out", str(mine)]) == 2
    assert "no bundle" in capsys.readouterr().err
    assert (mine / "thesis.txt").read_text() == "years of work"
    again = Path(shutil.copytree(bundle, tmp_path / "again"))
    (again / "config.yaml").write_text("damaged")
    assert cli.main(["export", folder, "--out", str(again)]) == 0
    Bundle.open(again)


def test_runs_that_cannot_be_exported(small: Small, tmp_path: Path) -> None:
    folder = small.out / "runs" / small.key("hadpsgd-2x2")
    out = str(tmp_path / "out")
    assert cli.main(["export", "single-nothing", "--results", str(tmp_path), "--out", out]) == 2
    assert cli.main(["export", str(tmp_path), "--out", out]) == 2  # no run's folder
    content = yaml.safe_load((folder / "config.yaml").read_text())
    content["features"]["imports"]["logmel"] = {"feats": "kaldi/feats.scp"}
    file = tmp_path / "imports.yaml"
    file.write_text(yaml.safe_dump(content))
    export(Run.of(folder, load(file)), tmp_path / "same", "")  # as its settings compute them
    content["features"]["logmel"]["bins"] -= 1
    file.write_text(yaml.safe_dump(content))
    with pytest.raises(UserError, match=r"imports\.logmel: what .* computes of dev's audio"):
        export(Run.of(folder, load(file)), tmp_path / "out", "")
    kaldi = yaml.safe_load((ROOT / "config/an4_full.yaml").read_text())
    del kaldi["features"]["imports"]["ivector"]["extractor"]
    file.write_text(yaml.safe_dump(kaldi))
    with pytest.raises(UserError, match=r"imports\.ivector: a new speaker has no i-vector"):
        export(Run.of(folder, load(file)), tmp_path / "out", "")
    unscored = shutil.copytree(folder, tmp_path / "results" / "small" / "runs" / folder.name)
    with pytest.raises(UserError, match=r"tuned\.json: missing"):
        export(Run.of(unscored, load(folder / "config.yaml")), tmp_path / "out", "")
    assert not (tmp_path / "out").exists()


def test_torch_and_the_decoder_are_enough(bundle: Path) -> None:
    code = RECOGNISES.format(absent=ABSENT, folder=str(bundle))
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    loaded = [name.split(".")[1:] for name in ran.stdout.split()]
    rooms = {name[0] for name in loaded}
    assert "decoding" in rooms and rooms.isdisjoint(ROOMS)
    assert {name[1] for name in loaded if name[0] == "lm" and len(name) > 1} <= READS_LM
    assert ["lm", "neural", "train"] not in loaded
    assert {name[1] for name in loaded if name[0] == "decentralized" and len(name) > 1} <= NAMES
