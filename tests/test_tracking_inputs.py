"""What MLflow shows of a run beside curves: data sets, whose it is, a description, its reruns."""

from __future__ import annotations

import getpass
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from tracking_data import make_config, write_config, write_scores, write_training

from hadpsgd.config import Config, run_key
from hadpsgd.rerun import linked
from hadpsgd.rerun.original import find
from hadpsgd.tracking import training_run
from hadpsgd.tracking.described import NOTE_TAG
from hadpsgd.tracking.store import PARENT_TAG, Store
from hadpsgd.tracking.sync import sync

pytestmark = pytest.mark.usefixtures("no_tracking_uri")
FRAMES = {"train": (36000, 54000), "dev": (3000, 6000), "swb": (700, 800, 900), "ch": (600,)}


def finished(results: Path, folder: Path, *, register_model: bool = False) -> Config:
    """A results folder with one run, trained and scored, and its data; MLflow lies in `folder`."""
    tracking = {"uri": f"sqlite:///{folder}/mlflow.db", "register_model": register_model}
    config = make_config(results, tracking=tracking)
    base = results / config.name
    for name, frames in FRAMES.items():
        tables = {f"corpus/data/{name}/text": "u0 A B\n", f"corpus/data/{name}/utt2spk": "u0 s\n"}
        counts = "".join(f"u{i} {count}\n" for i, count in enumerate(frames))
        for file, text in {**tables, f"feats/logmel/{name}/utt2num_frames": counts}.items():
            (base / file).parent.mkdir(parents=True, exist_ok=True)
            (base / file).write_text(text)
    runs = write_training(config, "single")
    write_config(config, runs / "config.yaml")
    write_scores(config, "single")
    return config


def run_in(config: Config) -> Any:
    """The training as MLflow has it."""
    [tracked] = [run for run in sync(config, None) if run.run == "single"]
    return client(config).get_run(tracked.mlflow_run)


def client(config: Config) -> Any:
    return Store(config.tracking.uri, Path(config.results) / "tracking").client


def sets(run: Any) -> dict[str, tuple[str, str, dict[str, float]]]:
    """By name: context, digest, size."""
    return {
        each.dataset.name: (
            each.tags[0].value,
            each.dataset.digest,
            json.loads(each.dataset.profile),
        )
        for each in run.inputs.dataset_inputs
    }


def test_data_sets_with_digests_and_sizes(mlflow_folder: Path) -> None:
    config = finished(mlflow_folder / "results", mlflow_folder)
    found = sets(run_in(config))
    assert {name: context for name, (context, _, _) in found.items()} == {
        "builtin/train": "training",
        "builtin/dev": "validation",
        "builtin/swb": "testing",
        "builtin/ch": "testing",
    }
    assert found["builtin/train"][2] == {"num_rows": 2, "frames": 90000, "hours": 0.25}
    assert found["builtin/swb"][2]["num_rows"] == 3
    base = mlflow_folder / "results/demo"
    for name in FRAMES:
        lines = [
            f"{file} sha256:{hashlib.sha256((base / file).read_bytes()).hexdigest()}\n"
            for file in (
                f"corpus/data/{name}/text",
                f"corpus/data/{name}/utt2spk",
                f"feats/logmel/{name}/utt2num_frames",
            )
        ]
        digest = hashlib.sha256("".join(lines).encode()).hexdigest()
        assert digest.startswith(found[f"builtin/{name}"][1]) and found[f"builtin/{name}"][1]
    again = run_in(config)  # nothing twice
    assert len(again.inputs.dataset_inputs) == len(FRAMES)
    (base / "corpus/data/ch/text").write_text("u0 A C\n")
    digests = {each.dataset.digest for each in run_in(config).inputs.dataset_inputs}
    assert len(digests) == len(FRAMES) + 1  # another ch


def test_a_model_names_the_sets_that_it_was_measured_on(mlflow_folder: Path) -> None:
    """The column Dataset of MLflow's pages of models; a set of two contents is not told."""
    config = finished(mlflow_folder / "results", mlflow_folder, register_model=True)
    run = run_in(config)
    [output] = run.outputs.model_outputs
    model = client(config).get_logged_model(output.model_id)
    told = {each.key: (each.dataset_name, each.dataset_digest) for each in model.metrics}
    digests = {name: digest for name, (_, digest, _) in sets(run).items()}
    assert {key for key in told if key.startswith("WER/")} == {"WER/dev", "WER/swb", "WER/ch"}
    for key, (name, digest) in told.items():
        measured = "builtin/dev" if key.startswith("final/") else f"builtin/{key[4:]}"
        assert (name, digest) == (measured, digests[measured]), key
    (mlflow_folder / "results/demo/corpus/data/ch/text").write_text("u0 A C\n")
    counts = mlflow_folder / "results/demo/graph/num_pdfs"  # another model
    counts.parent.mkdir()
    counts.write_text("1\n")
    model_id = max(
        run_in(config).outputs.model_outputs,
        key=lambda each: client(config).get_logged_model(each.model_id).creation_timestamp,
    ).model_id
    assert model_id != model.model_id
    again = client(config).get_logged_model(model_id).metrics
    known = {each.key for each in again if each.dataset_name}
    assert {each.key for each in again} == told.keys() and told.keys() - known == {"WER/ch"}


def test_user_and_description(mlflow_folder: Path) -> None:
    config = finished(mlflow_folder / "results", mlflow_folder)
    table = mlflow_folder / "results/demo/wer.md"
    assert NOTE_TAG not in run_in(config).data.tags  # not known yet
    table.write_text("| run | swb |\n|---|---|\n| single | 6.00 % |\n")
    run = run_in(config)
    assert run.data.tags["mlflow.user"] == run.info.user_id == getpass.getuser()
    assert run.data.tags[NOTE_TAG].startswith("Run `single` of config `demo`: single, 1 learner.")
    assert "| single | 6.00 % |" in run.data.tags[NOTE_TAG]
    table.write_text("| run | swb |\n" + "| single | 7.00 % |\n" * 1000)
    long = run_in(config).data.tags[NOTE_TAG]
    assert len(long) <= 5000 and long.count("| single | 7.00 % |\n") > 200  # whole lines
    client(config).set_tag(run.info.run_id, NOTE_TAG, "the one with the wrong lexicon")
    assert run_in(config).data.tags[NOTE_TAG] == "the one with the wrong lexicon"
    scorings = client(config).search_runs([run.info.experiment_id], "tags.kind = 'scoring'")
    assert [each.data.tags["mlflow.user"] for each in scorings] == [getpass.getuser()]


@pytest.mark.parametrize("by", ["folder", "id"])
def test_a_rerun_and_its_original_name_each_other(by: str, mlflow_folder: Path) -> None:
    config = finished(mlflow_folder / "results", mlflow_folder)
    first = run_in(config)
    key = run_key(config, "single")
    name = first.info.run_id if by == "id" else key
    original = find(name, mlflow_folder / "results", config.tracking.uri)
    again = finished(mlflow_folder / "again", mlflow_folder)
    linked.link(original, again, "# Rerun: identical\n", same=True)
    runs = client(config).search_runs(
        [first.info.experiment_id], f"tags.rerun_of = '{first.info.run_id}'"
    )
    [rerun] = runs
    assert rerun.info.run_id != first.info.run_id
    assert rerun.data.tags[PARENT_TAG] == first.info.run_id
    assert rerun.data.tags["rerun"] == "identical"
    assert rerun.data.tags[NOTE_TAG] == "# Rerun: identical\n"
    assert rerun.data.metrics["WER/swb"] == pytest.approx(6.0)
    tags = client(config).get_run(first.info.run_id).data.tags
    [told] = [value for tag, value in tags.items() if tag.startswith("rerun.")]
    assert told.startswith("identical; WER dev ") and "swb 6.00 %" in told
    assert told.endswith(rerun.info.run_id)
    linked.link(original, again, "# Rerun: DIFFERENT\n", same=False)  # made again, differently
    tags = client(config).get_run(first.info.run_id).data.tags
    assert [v[:9] for t, v in tags.items() if t.startswith("rerun.")] == ["different"]


def test_a_rerun_of_what_the_store_does_not_have(
    mlflow_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = finished(mlflow_folder / "results", mlflow_folder)
    key = run_key(config, "single")
    training_run.write_provenance(config, mlflow_folder / "results/demo/runs" / key)
    original = find(key, mlflow_folder / "results", config.tracking.uri)
    again = finished(mlflow_folder / "again", mlflow_folder)
    linked.link(original, again, "# Rerun\n", same=True)
    assert run_in(again).data.tags["rerun_of"] == original.key
    tracking = again.tracking.model_copy(update={"uri": "http://127.0.0.1:9"})
    linked.link(original, again.model_copy(update={"tracking": tracking}), "x", same=True)
    errors = [line for line in capsys.readouterr().err.splitlines() if "hadpsgd track" in line]
    assert errors and all("no server answers" in line for line in errors)
