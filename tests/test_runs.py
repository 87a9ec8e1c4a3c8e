"""Runs of a config vary in everything: settings of their own, seeds, ids; the site decides none."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from training_data import write_config, write_egs

from hadpsgd.cli import main
from hadpsgd.config import (
    Config,
    check,
    load,
    run_fingerprint,
    run_key,
    settings_of,
    shape_of,
    stage_keys,
)
from hadpsgd.config.base import DECIDES_NOTHING, Section
from hadpsgd.config.settings import LearningRate, Model, Settings
from hadpsgd.errors import UserError
from hadpsgd.models.build import load_model
from hadpsgd.sites import with_site
from hadpsgd.training.job import assemble

ROOT = Path(__file__).resolve().parents[1]
OTHER: dict[str, Any] = {
    "seed": 7,
    "epochs": 3,
    "batch": 512,
    "momentum": 0.5,
    "nesterov": True,
    "weight_decay": 1e-4,
    "clip_norm": 5.0,
    "precision": "bf16",
    "not_finite": "skip",
    "device": "cpu",
    "threads": 3,
    "readers": 2,
    "read_together": 4,
    "checkpoint_minutes": 2.5,
    "keep_checkpoints": 4,
    "lost_learner": "stop",
    "member_death": "continue",
    "silence_limit": 45.0,
    "learning_rate.base": 0.25,
    "learning_rate.base_batch": 128,
    "learning_rate.warmup_epochs": 2.0,
    "learning_rate.anneal_after": 3.0,
    "learning_rate.anneal_factor": 0.5,
    "average_last": 3,
    "early_stop": 2,
    "spec_augment": {"frequency_masks": 1},
    "ivector_dropout": 0.25,
    "model.layers": 2,
    "model.cells": 64,
    "model.projection": 32,
    "model.dropout": 0.25,
    "model.input_dropout": 0.125,
    "model.output_dropout": 0.375,
    "model.frames_per_step": 3,
}
"""A value that is not the default, of every key that a run may have of its own."""


def config(training: dict[str, Any] | None = None, **sections: Any) -> Config:
    content = {"name": "x", "corpus": {"kind": "builtin"}, "training": training or {}, **sections}
    return check(content, "test")


def nested(key: str, value: object) -> dict[str, Any]:
    """`learning_rate.base` as the YAML has it."""
    outer, _, inner = key.rpartition(".")
    return {outer: {inner: value}} if outer else {inner: value}


def keys_of_a_run() -> dict[str, bool]:
    """Every key that a run may have of its own, and whether it decides anything."""
    found = {}
    sections: dict[str, type[Section]] = {
        "": Settings,
        "learning_rate.": LearningRate,
        "model.": Model,
    }
    for prefix, section in sections.items():
        for name, field in section.model_fields.items():
            found[prefix + name] = field.json_schema_extra != DECIDES_NOTHING
    del found["learning_rate"]
    return found


def test_there_is_another_value_of_every_key() -> None:
    assert OTHER.keys() == keys_of_a_run().keys()


@pytest.mark.parametrize("key", OTHER)
def test_a_run_alone_changes_with_its_key(key: str) -> None:
    """The same as the common key changed for all; nothing before training is touched."""
    runs: list[dict[str, Any]] = [{"name": "a"}, {"name": "b"}]
    inputs = {"features": {"input": ["logmel", "ivector"]}}  # some keys are of these
    before = config({"runs": runs}, **inputs)
    after = config({"runs": [runs[0], runs[1] | nested(key, OTHER[key])]}, **inputs)
    common = nested(key, OTHER[key])
    model = common.pop("model", {})
    for_all = config({"runs": runs, **common}, model=model, **inputs)
    assert run_key(after, "a") == run_key(before, "a")
    assert (run_key(after, "b") != run_key(before, "b")) == keys_of_a_run()[key]
    assert run_key(after, "b") == run_key(for_all, "b")
    assert settings_of(after, "b").training == settings_of(for_all, "b").training
    assert settings_of(after, "b").model == settings_of(for_all, "b").model
    assert stage_keys(after) == stage_keys(before)


def test_what_is_given_as_the_common_settings_have_it_is_the_same_run() -> None:
    common = {"batch": 32, "learning_rate": {"base": 0.3}}
    plain = config({**common, "runs": [{"name": "a"}]})
    said = config({**common, "runs": [{"name": "a", "seed": 1, **common}]})
    assert run_key(plain, "a") == run_key(said, "a")


def test_sections_are_merged_key_by_key() -> None:
    made = config(
        {
            "learning_rate": {"base": 0.3, "anneal_after": 4},
            "runs": [{"learning_rate": {"base": 0.2}, "model": {"layers": 2}}],
        },
        model={"cells": 48},
    )
    settings = settings_of(made, "single-lr0.2-layers2")
    assert settings.training.learning_rate == LearningRate(base=0.2, anneal_after=4)
    assert settings.model == Model(layers=2, cells=48)
    assert settings.training.epochs == Settings().epochs and settings.seed == made.seed


@pytest.mark.parametrize(
    ("run", "id_"),
    [
        ({}, "single"),
        ({"batch": 128}, "single-batch128"),
        ({"seed": 3}, "single-s3"),
        ({"learning_rate": {"base": 0.05, "anneal_after": 8}}, "single-lr0.05-anneal_after8"),
        ({"nesterov": True, "precision": "bf16"}, "single-nesterov-bf16"),
        ({"nesterov": False, "not_finite": "skip"}, "single-no-nesterov-not_finite-skip"),
        ({"strategy": "ssgd", "learners": 4, "model": {"layers": 2}}, "ssgd-4-layers2"),
        ({"name": "wide", "model": {"cells": 1024}}, "wide"),
    ],
)
def test_ids_tell_what_a_run_has_otherwise(run: dict[str, Any], id_: str) -> None:
    assert [found.id for found in config({"runs": [run]}).training.members] == [id_]


def test_seeds_make_members_of_one_row() -> None:
    runs = [{}, {"name": "wide", "seeds": [4]}, {"strategy": "ssgd", "learners": 2, "seed": 9}]
    made = config({"seeds": [1, 2], "runs": runs})
    rows = {row: [run.id for run in members] for row, members in made.training.rows.items()}
    assert rows == {
        "single": ["single-s1", "single-s2"],
        "wide": ["wide-s4"],
        "ssgd-2-s9": ["ssgd-2-s9"],
    }
    assert [settings_of(made, run.id).seed for run in made.training.members] == [1, 2, 4, 9]
    assert made.realigner == "single-s1"
    again = check(yaml.safe_load(yaml.safe_dump(made.model_dump(mode="json"))), "again")
    assert again == made
    alone = config({"runs": [{"seed": 2}]})
    assert run_key(alone, "single-s2") == run_key(made, "single-s2")


def test_the_seed_of_training_is_apart_from_the_datas() -> None:
    base, other = config(), config({"seed": 2})
    assert stage_keys(other) == stage_keys(base)
    assert run_key(other, "single") != run_key(base, "single")
    assert run_key(config({"seed": 1}), "single") == run_key(base, "single")
    data = config({"seed": 1}, seed=2)
    assert run_fingerprint(data, "single") == run_fingerprint(base, "single")
    assert run_key(data, "single") != run_key(base, "single")
    assert settings_of(config(seed=5), "single").seed == 5


@pytest.mark.parametrize(
    ("training", "said"),
    [
        (
            {"runs": [{}, {"name": "wide", "model": {"layer": 2}}]},
            "unknown key 'training.runs.1.model.layer': did you mean 'layers'? allowed here: "
            "cells, dropout, frames_per_step, input_dropout, layers, output_dropout, projection "
            "(run 2, 'wide')",
        ),
        (
            {"runs": [{"strategy": "ssgd", "learners": 2, "learning_rate": {"base": -1}}]},
            "'training.runs.0.learning_rate.base' (-1): Input should be greater than 0 "
            "(run 1, 'ssgd')",
        ),
        (
            {"batch": 8, "runs": [{"strategy": "ssgd", "learners": 4, "batch": 10}]},
            "batch 10 cannot be divided among 4 learners of run 'ssgd-4-batch10'",
        ),
        ({"runs": [{}, {"pace": 2}]}, "two runs have the name 'single': give one of them a `name`"),
        ({"runs": [{"seeds": [1]}, {"seed": 1}]}, "two runs have the name 'single-s1'"),
        ({"runs": [{"seeds": [1]}, {}]}, "two runs have the name 'single'"),
        (
            {"runs": [{"name": "x", "seeds": [1, 2]}, {"name": "x-s1", "seeds": [1, 2]}]},
            "two runs have the name 'x-s1'",
        ),
        ({"runs": [{"seed": 1, "seeds": [1, 2]}]}, "give seed or seeds, not both"),
        ({"seed": 1, "seeds": [1, 2]}, "give training.seed or training.seeds, not both"),
        ({"seeds": [1, 1]}, "training.seeds: [1, 1] has one twice"),
        ({"seeds": []}, "'training.seeds': List should have at least 1 item"),
        ({"runs": [{k: v for k, v in OTHER.items() if "." not in k}]}, "give the run a `name`"),
        ({"cluster": {"hours": 3}}, "no key 'training.cluster' any more: facts of the machines"),
        (
            {"rendezvous_seconds": 3},
            "'training.rendezvous_seconds' any more: facts of the machines are in the section",
        ),
    ],
)
def test_wrong_runs_are_refused_by_name(training: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as refusal:
        config(training)
    assert said in str(refusal.value) and "\n" not in str(refusal.value)


def test_two_runs_of_one_config_are_trained_as_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the command line: layers, cells, batch, learning rate, epochs, seed."""
    runs: list[dict[str, Any]] = [
        {"name": "plain"},
        {
            "name": "other",
            "model": {"layers": 2, "cells": 12},
            "batch": 20,
            "learning_rate": {"base": 0.5},
            "epochs": 2,
        },
        {"name": "again", "seeds": [3, 4]},
    ]
    file = write_config(tmp_path, runs)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "none")
    egs = write_egs(tmp_path / "egs", 80, 1)
    summaries, rates, tensors = {}, {}, {}
    for run in load(file).training.members:
        out = tmp_path / run.id
        places = ["--egs", str(egs), "--dev-egs", str(egs), "--out", str(out)]
        assert main(["train", "--config", str(file), "--run-id", run.id, *places]) == 0
        summaries[run.id] = json.loads((out / "summary.json").read_text())
        rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        rates[run.id] = next(row["lr"] for row in rows if "lr" in row)
        model, meta = load_model(out / "final.pt")
        lstm, shape = model.lstm, meta.model_config
        assert (lstm.num_layers, lstm.hidden_size) == (shape.layers, shape.cells)
        tensors[run.id] = (lstm.num_layers, lstm.hidden_size)
    assert tensors["plain"] == (1, 8) and tensors["other"] == (2, 12)
    assert {run: found["steps"] for run, found in summaries.items()} == {
        "plain": 2 * 3,
        "other": 4 * 2,
        "again-s3": 2 * 3,
        "again-s4": 2 * 3,
    }
    # base * batch / base_batch
    assert rates["plain"] == pytest.approx(1.0) and rates["other"] == pytest.approx(0.25)
    weights = {run: found["weights"] for run, found in summaries.items()}
    assert weights["plain"] == weights["again-s3"] != weights["again-s4"]  # the config's seed is 3


def test_nobody_asks_the_common_settings_where_a_run_is_meant() -> None:
    """Outside of the config, settings_of is the one place."""
    package = ROOT / "workflow"
    keys = "|".join(["runs", *Settings.model_fields])
    asked = re.compile(rf"config\.(model|training\.({keys}))\b", re.IGNORECASE)
    found = [
        f"{file.relative_to(package)}:{number}: {line.strip()}"
        for file in [*package.rglob("*.py"), *package.rglob("*.smk")]
        if file.parent.name != "config"
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if asked.search(line) and not re.match(r" *(from|import) ", line)
    ]
    assert not found


def test_commands_tell_of_the_run_that_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs: list[dict[str, Any]] = [{}, {"name": "b", "model": {"layers": 2}, "epochs": 1}]
    file = str(write_config(tmp_path, runs))
    for run, layers, epochs in (("single", 1, 3), ("b", 2, 1)):
        small = ("--input-dim", "6", "--num-pdfs", "7")
        assert main(["model-info", "--config", file, "--run-id", run, *small]) == 0
        assert capsys.readouterr().out.count("LSTM ") == layers
        assert main(["learning-rate", "--config", file, "--run-id", run]) == 0
        assert len(capsys.readouterr().out.splitlines()) == 1 + epochs


@pytest.mark.parametrize(("name", "status"), [("a.svg", 0), ("a", 2), ("a.doc", 2)])
def test_the_learning_rate_is_drawn_in_kinds_that_are_told(
    name: str, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, picture = write_config(tmp_path, [{}]), tmp_path / name
    assert main(["learning-rate", "--config", str(file), "--plot", str(picture)]) == status
    assert picture.is_file() == (status == 0)
    said = capsys.readouterr().err
    assert status == 0 or (said.count("\n") == 1 and ".png, .svg or .pdf" in said)


def test_the_site_comes_from_a_file_or_the_config(tmp_path: Path) -> None:
    runs = [{"strategy": "ssgd", "learners": 4}]
    file = tmp_path / "site.yaml"
    file.write_text("learners_per_node: 2\ngpus: each\ngpu_type: a100\n")
    here = config({"runs": runs})
    there = config({"runs": runs}, site=str(file))
    assert there == config({"runs": runs}, site=yaml.safe_load(file.read_text()))
    assert run_key(there, "ssgd-4") == run_key(here, "ssgd-4")
    assert shape_of(here, "ssgd-4").nodes == 1 and not shape_of(here, "ssgd-4").gres
    assert shape_of(there, "ssgd-4").nodes == 2 and shape_of(there, "ssgd-4").gres == "gpu:a100:2"
    file.write_text("# nothing yet\n")
    assert config(site=str(file)) == config()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hour: 3", "unknown key 'site.hour': did you mean 'hours'?"),
        ("hours: none", "'site.hours' ('none')"),
        ("[1, 2]", "a site is a mapping"),
        ("a: {", "not YAML"),
        (None, "No such file or directory"),
    ],
)
def test_a_wrong_site_is_refused_with_its_file(text: str | None, said: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UserError) as refusal:
        config(site=str(file))
    assert said in str(refusal.value) and str(file) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_learners_that_the_site_cannot_take_are_named_with_their_run() -> None:
    with pytest.raises(UserError, match=r"run 'ssgd-6': 6 learners cannot be laid out 4 to a host"):
        config(
            {"batch": 60, "runs": [{"strategy": "ssgd", "learners": 6}]},
            site={"learners_per_node": 4},
        )


@pytest.mark.parametrize("name", ["local", "slurm"])
def test_a_profile_names_its_site(name: str) -> None:
    profile = yaml.safe_load((ROOT / f"profiles/{name}/config.yaml").read_text())
    (given,) = profile["config"]
    key, _, file = given.partition("=")
    assert key == "site"
    site = config(site=str(ROOT / file)).site
    assert site.hours == config().site.hours


@pytest.mark.parametrize(
    ("named", "own", "found"),
    [
        (None, None, None),
        ("mine.yaml", None, "mine.yaml"),
        ("profiles/slurm/site.yaml", None, str(ROOT / "profiles/slurm/site.yaml")),
        ("mine.yaml", {"cpus": 2}, {"cpus": 2}),  # a module's
        ("nowhere.yaml", None, "nowhere.yaml"),  # the config's check says so
    ],
)
def test_where_a_workflow_finds_its_site(
    named: str | None, own: object, found: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the profile says: beside the workflow's results, then in the checkout."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("cpus: 3\n")
    given = {} if named is None else {"site": named}
    workflow = SimpleNamespace(config_settings=SimpleNamespace(overwrite_config=given))
    assert with_site(workflow, {} if own is None else {"site": own}).get("site") == found


def test_members_start_alike_only_with_one_seed(tmp_path: Path) -> None:
    """The first weights and the order of examples follow training's seed, examples do not."""

    egs = write_egs(tmp_path / "egs", 80, 1)
    file = write_config(tmp_path, [{"seeds": [3, 4]}])
    jobs = [
        assemble(load(file), run.id, egs=egs, dev_egs=egs, out=tmp_path / run.id)
        for run in load(file).training.members
    ]
    first, second = (torch.cat([p.flatten() for p in job.model.parameters()]) for job in jobs)
    assert not torch.equal(first, second)
    orders = [job.feed.plan.part(epoch=0, step=0, rank=0, learners=1).tolist() for job in jobs]
    assert orders[0] != orders[1]
    assert jobs[0].gradients.seed == 3 and jobs[1].gradients.seed == 4
