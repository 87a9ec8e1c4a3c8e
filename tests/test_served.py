"""Models as MLflow loads and serves them, where this project is not installed."""

from __future__ import annotations

import ast
import base64
import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from small_workflow import Small
from tracking_data import make_config, write_model

from hadpsgd import cli
from hadpsgd.models.build import load_model
from hadpsgd.scoring.bundle.bundle import Bundle
from hadpsgd.tracking.events import Model
from hadpsgd.tracking.models import kinds
from hadpsgd.tracking.models.carried import needed
from hadpsgd.tracking.models.kinds import Kind
from hadpsgd.tracking.spool import Spool

RATE = 8000
# no project; a server's answers to requests, as JSON
ELSEWHERE = """
import importlib.util, json, sys
absent = {"snakemake", "kaldilm", "kaldialign", "espeakng_loader", "sentencepiece"}
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in absent:
            raise ModuleNotFoundError(name + " is not installed", name=name)
sys.path = [path for path in sys.path if not path.endswith("workflow")]
sys.meta_path = [Absent(), *(each for each in sys.meta_path if "editable" not in repr(each))]
assert importlib.util.find_spec("hadpsgd") is None
import mlflow.pyfunc
from mlflow.exceptions import MlflowException
from mlflow.pyfunc import scoring_server
model = mlflow.pyfunc.load_model(sys.argv[1])
answers = []
for request in json.load(sys.stdin):
    try:
        data = json.dumps(request)
        schema = model.metadata.get_input_schema()
        found = scoring_server.invocations(data, "application/json", model, schema)
        answers.append([found.status, json.loads(found.response)["predictions"]])
    except MlflowException as error:
        answers.append([error.get_http_status_code(), error.message])
example = model.predict(model.input_example)
import hadpsgd
example = example if isinstance(example, list) else example.tolist()
print(json.dumps({"answers": answers, "example": example, "code": hadpsgd.__file__}))
"""


def elsewhere(model: Path, *requests: object) -> dict[str, Any]:
    """Load a model without this project; what it answers."""
    ran = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(model)],
        input=json.dumps(requests),
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["code"].startswith(str(model))
    return found


@pytest.fixture(scope="module")
def bundle(small: Small, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bundle") / "bundle"
    folder = small.out / "runs" / small.key("hadpsgd-2x2-dpsgd")
    assert cli.main(["export", str(folder), "--out", str(out)]) == 0
    return out


@pytest.fixture
def network(tmp_path: Path) -> Path:
    write_model(tmp_path / "final.pt", make_config(tmp_path))
    return tmp_path / "final.pt"


def test_a_recogniser_answers_elsewhere(small: Small, bundle: Path, tmp_path: Path) -> None:
    """A file in base64 and samples say what `hadpsgd transcribe` says of the file."""
    kinds.recogniser(bundle).save(tmp_path / "model")
    recording = next((small.out / "corpus/audio/swb").glob("*.wav"))
    samples, rate = soundfile.read(recording, dtype="int16", frames=5 * RATE)
    two, one, loud = tmp_path / "two.flac", tmp_path / "one.wav", (samples[:, 0] + 0.5).tolist()
    soundfile.write(two, samples, rate)
    soundfile.write(one, samples[:, 0], rate)
    arguments = ["transcribe", str(bundle), str(two), str(one), "--out", str(tmp_path / "out")]
    assert cli.main([*arguments, "--format", "json", "--format", "txt"]) == 0

    row = {"audio": base64.b64encode(two.read_bytes()).decode()}
    floats = {"samples": (samples[:, 0] / 2**15).tolist(), "sampling_rate": rate}
    requests = (
        {"dataframe_records": [row]},
        {"inputs": [floats]},
        {"dataframe_records": [{"audio": base64.b64encode(b"no audio").decode()}]},
        {"dataframe_records": [{"samples": loud, "sampling_rate": rate}]},
        {"dataframe_records": [{"samples": [0.0, 0.1]}]},
        {"dataframe_records": [{"sampling_rate": rate}]},
    )
    found = elsewhere(tmp_path / "model", *requests)
    (status, (of_file,)), (_, (of_samples,)), *refused = found["answers"]
    assert status == 200
    for name, heard in (("two", of_file), ("one", of_samples)):
        told = json.loads((tmp_path / "out" / f"{name}.json").read_text())
        words = [
            {"channel": segment["channel"], **word}
            for segment in told["segments"]
            for word in segment["words"]
        ]
        assert sorted(heard["words"], key=str) == sorted(words, key=str) and len(words) > 1
        assert heard["text"] == (tmp_path / "out" / f"{name}.txt").read_text()
        assert heard["seconds"] == told["seconds"]
    assert [code for code, _ in refused] == [400] * 4
    reasons = ("not readable as audio", "floats from -1 to 1", "`sampling_rate`", "needs `audio`")
    for (_, message), reason in zip(refused, reasons, strict=True):
        (line,) = [line for line in message.splitlines() if "Error: " in line]
        assert "recording 0: " in line and reason in line and "/tmp" not in line
    assert found["example"] == [{"seconds": 0.5, "text": "", "words": []}]


def test_a_network_answers_elsewhere(network: Path, tmp_path: Path) -> None:
    """Of a run without a bundle: log-posteriors minus log-priors."""
    kind = kinds.network(network)
    kind.save(tmp_path / "model")
    model, meta = load_model(network)
    with torch.inference_mode():
        logits = model(torch.as_tensor(kind.example))
    wanted = torch.log_softmax(logits, -1) - meta.log_priors
    found = elsewhere(tmp_path / "model", {"inputs": kind.example.tolist()})
    np.testing.assert_allclose(found["example"], wanted.numpy(), atol=1e-6)
    ((status, answer),) = found["answers"]
    assert status == 200
    np.testing.assert_allclose(answer, wanted.numpy(), atol=1e-6)


def outside(kind: Kind) -> list[set[str]]:
    """What a model's own code imports: for each module the packages that have it."""
    trees = [ast.parse(file.read_text()) for file in needed(kind.loader).values()]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = [a.name for node in nodes if isinstance(node, ast.Import) for a in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    modules = {name.split(".")[0] for name in names}
    modules -= {*sys.stdlib_module_names, "hadpsgd"}
    known = metadata.packages_distributions()
    return [{n.lower().replace("_", "-") for n in known.get(m, [m])} for m in modules]


@pytest.mark.parametrize("takes", ["recordings", "features"])
def test_requirements_are_exact_few_and_enough(
    takes: str, bundle: Path, network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = kinds.recogniser(bundle) if takes == "recordings" else kinds.network(network)
    assert kind.takes == takes
    local = {"torch": "2.13.0+cpu", "numpy": "2.4.6"}
    version = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: local.get(name) or version(name))
    lines = kinds.requirements(kind.packages)
    assert "torch==2.13.0" in lines and "numpy==2.4.6" in lines
    assert all(re.fullmatch(r"[a-z-]+==\d[\w.]*", line) for line in lines)
    # what torch brings along; triton where there is a GPU
    there = {"typing-extensions", "triton", *kind.packages}
    assert [names for names in outside(kind) if names.isdisjoint(there)] == []


def test_only_what_recognises_travels(bundle: Path) -> None:
    names = needed(kinds.recogniser(bundle).loader)
    rooms = {name.split(".")[1] for name in names if "." in name}
    assert rooms.isdisjoint(("training", "egs", "reports", "planning", "rerun", "images"))
    reads = {
        "stored",
        "backoff",
        "arpa",
        "blocks",
        "contexts",
        "neural",
        "perplexity",
        "vocabulary",
    }
    assert {name.split(".")[2] for name in names if name.startswith("hadpsgd.lm.")} <= reads
    assert {name for name in names if name.startswith("hadpsgd.tracking.")} == {
        "hadpsgd.tracking.models",
        "hadpsgd.tracking.models.served_recogniser",
    }
    assert [model.name for model in Bundle.open(bundle).models] == ["final.pt"]


def test_a_model_in_the_spool_knows_its_run(network: Path, tmp_path: Path) -> None:
    """Its file is copied there; a bundle is made from the run's folder when it is sent."""
    spool = Spool(tmp_path / "spool", key="k", store="s")
    spool.add([Model(path=str(network), name="m", run="/results/demo/runs/single-1")])
    (event,) = spool.waiting()
    assert isinstance(event, Model) and event.run == "/results/demo/runs/single-1"
    assert Path(event.path).read_bytes() == network.read_bytes() and event.path != str(network)
