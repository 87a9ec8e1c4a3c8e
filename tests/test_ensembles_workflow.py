"""Ensembles of the small workflow's two runs, and of one and the GMM-HMM: scores, rows, bundle."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from numpy.typing import NDArray
from scipy.stats import norm
from small_workflow import Small

from hadpsgd import cli
from hadpsgd.config import beside_rows, load, models_together, run_key
from hadpsgd.decoding.gmm import GmmScorer
from hadpsgd.decoding.network import NetworkScorer, read_data
from hadpsgd.decoding.with_gmm import WithGmm
from hadpsgd.features.fusion import Fusion
from hadpsgd.gmm import model as gmm_model
from hadpsgd.models.blstm import BLSTM
from hadpsgd.models.build import load_model, save_diverged, save_model
from hadpsgd.models.long_input import hidden
from hadpsgd.scoring.bundle.bundle import Bundle

pytestmark = pytest.mark.slow


def with_both(small: Small, results: Path, file: Path, uri: str = "none") -> Path:
    """The small workflow's config with two ensembles, for other results."""
    content = yaml.safe_load(small.config.read_text())
    runs = [run.id for run in load(small.config).training.members]
    ensembles = {"both": runs, "with-gmm": [runs[0], "gmm-mono"]}
    content["decoding"] |= {"gmm": True, "ensembles": ensembles, "gmm_share": 0.3}
    content |= {"results": str(results), "tracking": {"uri": uri}}
    file.write_text(yaml.safe_dump(content))
    return file


@pytest.fixture(scope="module")
def both(small: Small, tmp_path_factory: pytest.TempPathFactory, empty_mlflow: Path) -> Small:
    """A copy of the small workflow's results, gone on with an ensemble."""
    folder = tmp_path_factory.mktemp("both")
    shutil.copytree(small.results, folder / "results", symlinks=True)
    shutil.copyfile(empty_mlflow, folder / "mlflow.db")
    uri = f"sqlite:///{folder}/mlflow.db"
    made = Small(folder, with_both(small, folder / "results", folder / "small.yaml", uri))
    # Snakemake has no record of the copy, and takes tables that are there for these
    for name in ("wer.md", "index.html", "tracking.json"):
        (made.out / name).unlink()
    ran = made.command(
        *("snakemake", "--profile", "local", "--cores", "2", "--configfile", str(made.config))
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert "rule train:" not in ran.stdout + ran.stderr
    return made


def test_in_a_finished_workflow_nothing_is_trained_for_it(small: Small, tmp_path: Path) -> None:
    """There the record of jobs says that tables were made of other scores."""
    file = with_both(small, small.results, tmp_path / "both.yaml")
    planned = small.command(
        *("snakemake", "-n", "--profile", "local", "--configfile", str(file), "--quiet", "rules")
    )
    assert planned.returncode == 0, planned.stdout[-3000:] + planned.stderr[-3000:]
    said = planned.stdout + planned.stderr
    found = {rule: int(n) for rule, n in re.findall(r"^(\w+) +(\d+)$", said, re.MULTILINE)}
    assert found.pop("total") == sum(found.values()) and found.pop("all") == 1
    assert found == {"features": 2, "decode": 6, "decode_gmm": 3, "tune": 3, "score": 9,
                     "error_analysis": 2, "compare_errors": 2, "index": 1, "track": 1, "report": 1,
                     "track_beside": 3}  # fmt: skip


def test_scores_are_the_mean_of_the_networks(both: Small) -> None:
    """Against NumPy; of one network its very bits."""
    config = load(both.config)
    models = [
        both.out / "runs" / run_key(config, r.id) / "final.pt" for r in config.training.members
    ]
    place: dict[str, Any] = {
        "config": config,
        "data": both.out / "corpus/data/swb",
        "streams": both.out / "feats",
    }
    scorer = NetworkScorer(models=tuple(models), **place)
    name = scorer.utterances()[0]
    fusion = Fusion(config, both.out / "feats", read_data(both.out / "corpus/data/swb"))
    alone = []
    for path in models:
        model, meta = load_model(path)
        one = NetworkScorer(models=(path,), **place)()(name)[:]
        with torch.inference_mode():
            frames = torch.from_numpy(fusion[name])
            outputs = model.output(hidden(model, frames)).double().numpy()
        largest = outputs.max(1, keepdims=True)
        log_sum = largest + np.log(np.exp(outputs - largest).sum(1, keepdims=True))
        alone.append(outputs - log_sum - meta.log_priors.double().numpy())
        np.testing.assert_allclose(one, alone[-1], atol=1e-4)
    found = scorer()(name)[:]
    assert np.abs(alone[0] - alone[1]).max() > 0.1
    np.testing.assert_allclose(found, (alone[0] + alone[1]) / 2, atol=1e-4)


def by_numpy(folder: Path, features: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log-likelihoods [frames, pdfs] of diagonal mixtures, Gaussian by Gaussian."""
    mixtures = gmm_model.read(folder / "final.mdl").mixtures
    found = np.full((len(features), mixtures.num_pdfs), -np.inf)
    for n, pdf in enumerate(mixtures.pdf_of):
        spread = np.sqrt(mixtures.variances[n])
        each = norm.logpdf(features, mixtures.means[n], spread).sum(1) + np.log(mixtures.weights[n])
        found[:, pdf] = np.logaddexp(found[:, pdf], each)
    return found


def test_scores_with_the_gmm_are_shares_of_both(both: Small) -> None:
    """Against densities of SciPy."""
    config, out = load(both.config), both.out
    name, (run, _) = "swb", [run_key(config, r.id) for r in config.training.members]
    data, ali = out / "corpus/data" / name, out / "ali/train"
    networks = NetworkScorer(
        config=config,
        models=(out / "runs" / run / "final.pt",),
        data=data,
        streams=out / "feats",
    )
    gmm = GmmScorer(folder=ali, data=data, feats=out / "feats/mfcc" / name)
    scorer = WithGmm(networks=networks, gmm=gmm, gmm_share=0.3)
    assert scorer.utterances() == networks.utterances()
    utterance = scorer.utterances()[0]
    dense = by_numpy(ali, gmm.features(39)[utterance].astype(np.float64))
    alone = networks()(utterance)[:].astype(np.float64)
    found = scorer()(utterance)[:]
    np.testing.assert_allclose(found, 0.7 * alone + 0.3 * dense, atol=2e-3)
    assert np.abs(found - alone).max() > 1


def test_the_gmm_of_other_states_is_refused(both: Small, tmp_path: Path) -> None:
    config, out = load(both.config), both.out
    run = out / "runs" / run_key(config, config.training.members[0].id) / "final.pt"
    _, meta = load_model(run)
    more = BLSTM(config.model, input_dim=meta.input_dim, num_pdfs=meta.num_pdfs + 1)
    priors = torch.full((meta.num_pdfs + 1,), 1 / (meta.num_pdfs + 1)).log()
    other = replace(meta, num_pdfs=meta.num_pdfs + 1, log_priors=priors)
    save_model(tmp_path / "o.pt", more, other)
    told = {
        ("--model", str(tmp_path / "o.pt"), "--gmm", str(out / "ali/train"),
         "--gmm-feats", str(out / "feats/mfcc")): "pdf-ids, and the networks have",
        ("--model", str(run), "--gmm", str(out / "ali/train")): "--gmm needs --gmm-feats",
        ("--model", str(run), "--gmm-feats", str(out / "feats/mfcc")): "are of --gmm",
        ("--model", str(run), "--gmm", str(tmp_path), "--gmm-feats",
         str(out / "feats/mfcc")): "final.mdl",
    }  # fmt: skip
    for arguments, what in told.items():
        ran = both.command(
            *("hadpsgd", "decode", *arguments, "--graph", str(out / "graph")),
            *("--data", str(out / "corpus/data/swb"), "--config", str(both.config)),
            *("--streams", str(out / "feats"), "--out", str(tmp_path / "d")),
        )
        assert ran.returncode == 2 and what in ran.stderr, ran.stderr
        assert "Traceback" not in ran.stderr


def test_the_gmm_of_another_tree_is_refused(both: Small, tmp_path: Path) -> None:
    """With as many states: two of them have changed places."""
    config, out = load(both.config), both.out
    shutil.copytree(out / "ali/train", tmp_path / "ali")
    found = gmm_model.read(tmp_path / "ali/final.mdl")
    tuples = found.transitions.tuples.copy()
    tuples[[0, 1], 2:] = tuples[[1, 0], 2:]
    other = replace(found, transitions=replace(found.transitions, tuples=tuples))
    (tmp_path / "ali/final.mdl").write_bytes(gmm_model.content(other))
    run = out / "runs" / run_key(config, config.training.members[0].id) / "final.pt"
    ran = both.command(
        *("hadpsgd", "decode", "--config", str(both.config), "--model", str(run)),
        *("--graph", str(out / "graph"), "--data", str(out / "corpus/data/swb")),
        *("--streams", str(out / "feats"), "--out", str(tmp_path / "d")),
        *("--gmm", str(tmp_path / "ali"), "--gmm-feats", str(out / "feats/mfcc")),
    )
    assert ran.returncode == 2 and "other states than those of" in ran.stderr, ran.stderr


def test_the_gmm_is_in_what_the_workflow_decoded(both: Small, tmp_path: Path) -> None:
    """Its lattices are those of the command by hand with the share of the config, to the byte."""
    config, out = load(both.config), both.out
    key = beside_rows(config)["with-gmm"]
    [run] = models_together(config)[key]
    ran = both.command(
        *("hadpsgd", "decode", "--config", str(both.config), "--graph", str(out / "graph")),
        *("--model", str(out / "runs" / run / "final.pt"), "--data", str(out / "corpus/data/ch")),
        *("--streams", str(out / "feats"), "--out", str(tmp_path / "d")),
        *("--gmm", str(out / "ali/train"), "--gmm-feats", str(out / "feats/mfcc")),
    )
    assert ran.returncode == 0, ran.stderr
    made = gzip.decompress((out / "decode" / key / "ch/lat.1.gz").read_bytes())
    assert gzip.decompress((tmp_path / "d/lat.1.gz").read_bytes()) == made
    assert gzip.decompress((out / "decode" / run / "ch/lat.1.gz").read_bytes()) != made
    assert re.search(
        r"^\| with-gmm +\| 1 run and GMM together ", (out / "wer.md").read_text(), re.M
    )
    assert json.loads((tmp_path / "d/decode.json").read_text())["gmm_share"] == 0.3
    assert "gmm_share" not in (out / "decode" / run / "ch/decode.json").read_text()
    assert (out / "errors" / key / "index.html").is_file()


def test_an_ensemble_with_the_gmm_is_not_exported(
    both: Small, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = beside_rows(load(both.config))["with-gmm"]
    assert cli.main(["export", key, "--results", str(both.results),
                     "--out", str(tmp_path / "bundle")]) == 2  # fmt: skip
    assert "has the GMM-HMM among its models, which no bundle holds" in capsys.readouterr().err


def test_networks_of_other_alignments_are_refused(both: Small, tmp_path: Path) -> None:
    config = load(both.config)
    first = both.out / "runs" / run_key(config, config.training.members[0].id) / "final.pt"
    _, meta = load_model(first)
    more = BLSTM(config.model, input_dim=meta.input_dim, num_pdfs=meta.num_pdfs + 1)
    priors = torch.full((meta.num_pdfs + 1,), 1 / (meta.num_pdfs + 1)).log()
    save_model(
        tmp_path / "o.pt", more, replace(meta, num_pdfs=meta.num_pdfs + 1, log_priors=priors)
    )
    arguments = ["--graph", str(both.out / "graph"), "--data", str(both.out / "corpus/data/swb"),
                 "--config", str(both.config), "--streams", str(both.out / "feats"),
                 "--out", str(tmp_path / "d")]  # fmt: skip
    ran = both.command(
        "hadpsgd", "decode", "--model", str(first), str(tmp_path / "o.pt"), *arguments
    )
    assert ran.returncode == 2 and "pdf-ids, and" in ran.stderr and "Traceback" not in ran.stderr
    save_diverged(tmp_path / "o.pt", "loss of inf")
    ran = both.command(
        *("hadpsgd", "decode", "--model", str(first), "--model", str(tmp_path / "o.pt")), *arguments
    )
    assert ran.returncode == 0 and "diverged (loss of inf)" in ran.stderr
    assert json.loads((tmp_path / "d/diverged.json").read_text()) == {"diverged": "loss of inf"}


def test_the_workflow_has_its_row_and_pages(both: Small) -> None:
    config = load(both.config)
    key = beside_rows(config)["both"]
    wer = (both.out / "wer.md").read_text()
    assert re.search(r"^\| both +\| 2 runs together ", wer, re.MULTILINE)
    for name in ("dev", "swb", "ch"):
        assert (both.out / "score" / key / name / "wer.json").is_file()
    assert (both.out / "errors" / key / "index.html").is_file()
    assert "ensembles" not in (both.out / "decode" / key / "dev/decode.json").read_text()
    index = (both.out / "index.html").read_text()
    [told] = json.loads((both.out / f"tracked/{key}.scores.json").read_text())["runs"]
    assert told["run"] == "both" and len(told["mlflow_run"]) == 32
    assert f"| {told['mlflow_run']} |" in wer and told["mlflow_run"] in index  # which it precedes
    assert f"errors/{key}/index.html" in index and f"compared/{key}/index.html" in index
    again = both.command(
        *("snakemake", "-n", "--profile", "local", "--configfile", str(both.config))
    )
    assert "Nothing to be done" in again.stdout + again.stderr


def test_its_bundle_has_all_networks(
    both: Small, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = load(both.config)
    key, out = beside_rows(config)["both"], tmp_path / "bundle"
    assert cli.main(["export", key, "--results", str(both.results), "--out", str(out)]) == 0
    opened = Bundle.open(out)
    assert [model.name for model in opened.models] == ["final.pt", "final.2.pt"]
    runs = models_together(config)[key]
    for model, run in zip(opened.models, runs, strict=True):
        assert model.read_bytes() == (both.out / "runs" / run / "final.pt").read_bytes()
    assert opened.manifest.format == 2  # others than one of one network
    assert opened.manifest.run == key and set(opened.manifest.scores) == {"dev", "swb", "ch"}
    audio = next((both.out / "corpus/audio/swb").glob("*.wav"))
    said = both.command("hadpsgd", "transcribe", str(out), str(audio), "--out", str(tmp_path / "t"))
    assert said.returncode == 0, said.stderr
    assert cli.main(["export", key, "--results", str(both.results), "--onnx",
                     "--out", str(tmp_path / "o")]) == 2  # fmt: skip
    assert "2 networks, and an ONNX file holds one" in capsys.readouterr().err


def test_an_ensemble_of_a_former_start_is_exported(
    both: Small, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = load(both.config)
    key = beside_rows(config)["both"]
    other = tmp_path / "results"
    shutil.copytree(both.results, other, symlinks=True)
    (other / "small/config.yaml").write_text("no_such_key: 1\n")  # of another version
    assert cli.main(["export", key, "--results", str(other), "--out", str(tmp_path / "a")]) == 0, (
        "configs/ has it"
    )
    run = run_key(config, config.training.members[0].id)
    assert cli.main(["export", run, "--results", str(other), "--out", str(tmp_path / "r")]) == 0
    (other / "twice").mkdir()
    shutil.copytree(other / "small", other / "twice/small", symlinks=True)
    shutil.move(other / "twice/small", other / "second")
    assert cli.main(["export", key, "--results", str(other), "--out", str(tmp_path / "b")]) == 2
    assert "is there 2 times" in capsys.readouterr().err
    folder = str(other / "second/score" / key)
    assert cli.main(["export", folder, "--out", str(tmp_path / "c")]) == 0
