"""Stages of sequence training: runs of a config, trained by every kind of engine, replayed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
import yaml
from small_workflow import ASYNCHRONOUS, Small, write
from training_data import DIM, FRAMES, PDFS, write_config, write_egs, write_examples
from training_runs import weights

from hadpsgd.cli import main
from hadpsgd.config import before, check, examples_of, load, run_key, settings_of
from hadpsgd.errors import UserError
from hadpsgd.graph.denominator import FILE, Denominator
from hadpsgd.models.build import load_model, save_diverged
from hadpsgd.training.launch import FAILED
from hadpsgd.training.saved import complete

pytestmark = pytest.mark.usefixtures("unrecorded")

STAGE: dict[str, Any] = {
    "criterion": "lfmmi",
    "epochs": 2,
    "batch": 20,
    "learning_rate": {"base": 0.5, "base_batch": 20},
}
PAIR = {"strategy": "adpsgd", "learners": 2}


def any_order(pdfs: int = PDFS) -> Denominator:
    """Every pdf-id after every one."""
    source, target = (a.ravel().astype(np.int32) for a in np.indices((pdfs, pdfs)))
    share = np.full(pdfs * pdfs, 1 / pdfs, np.float32)
    return Denominator(np.arange(pdfs, dtype=np.int32), source, target, share, share[:pdfs])


@pytest.fixture(scope="module")
def egs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Examples of cross-entropy's and of a stage's."""
    folder = tmp_path_factory.mktemp("egs")
    for name in ("egs", "sequence/lfmmi"):
        write_egs(folder / name / "train", 200, 1)
        write_egs(folder / name / "dev", 50, 2)
    any_order().write(folder / "sequence/lfmmi/train" / FILE)
    return folder


def command(config: Path, egs: Path, run: str, out: Path, initial: Path | None) -> list[str]:
    """`hadpsgd launch` of a run."""
    examples = egs / examples_of(load(config), run)
    given = ["--initial", str(initial)] if initial else []
    return [
        *("launch", "--config", str(config), "--run-id", run, "--egs", str(examples / "train")),
        *("--dev-egs", str(examples / "dev"), "--out", str(out), *given),
    ]


def trained(folder: Path, egs: Path, run: dict[str, Any], **training: Any) -> tuple[Path, str]:
    """A run and its stage; the config, and the run's name."""
    config = write_config(folder, [run], stages=[STAGE], **training)
    name = load(config).training.runs[0].id
    for each, initial in ((name, None), (f"{name}-lfmmi", folder / name / "final.pt")):
        assert main(command(config, egs, each, folder / each, initial)) == 0
    return config, name


@pytest.mark.slow
@pytest.mark.parametrize(
    "run",
    [
        {"strategy": "ssgd", "learners": 2},
        PAIR,
        {"strategy": "hadpsgd", "learners": 4, "super_learner": 2},
        {**PAIR, "name": "pairs", "model": {"frames_per_step": 2}},
    ],
    ids=["ssgd", "adpsgd", "hadpsgd", "frames-in-pairs"],
)
def test_a_run_goes_on_with_sequences_and_is_replayed(
    run: dict[str, Any], egs: Path, tmp_path: Path
) -> None:
    """Every bit of an asynchronous one follows from its record."""
    config, name = trained(tmp_path, egs, run)
    ends = [
        json.loads((tmp_path / n / "summary.json").read_text()) for n in (name, f"{name}-lfmmi")
    ]
    assert ends[1]["run"] == f"{name}-lfmmi"
    assert ends[1]["steps"] == 2 * 200 // 20
    heard = [
        row
        for row in map(json.loads, (tmp_path / f"{name}-lfmmi/metrics.jsonl").open())
        if "heldout_loss" in row
    ]
    assert heard[-1]["heldout_loss"] < heard[0]["heldout_loss"]
    final, again = weights(tmp_path / f"{name}-lfmmi"), tmp_path / "again"
    assert not torch.equal(final, weights(tmp_path / name))
    if name == "ssgd-2":
        return
    replay = ["replay", "--config", str(config), "--run-id", f"{name}-lfmmi"]
    replay += ["--egs", str(egs / "sequence/lfmmi/train"), "--out", str(again)]
    assert main([*replay, "--initial", str(tmp_path / name / "final.pt")]) == 0
    assert torch.equal(weights(again), final)


def killed(lines: list[str], folder: Path, run: str) -> None:
    """`kill -9` of the launcher and its learners, once all have written a checkpoint."""
    process = subprocess.Popen([sys.executable, "-m", "hadpsgd", *lines], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not any(map(complete, folder.glob(f"results/checkpoints/tiny/{run}-*"))):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    learners = psutil.Process(process.pid).children(recursive=True)
    assert learners
    for each in (process, *learners):
        each.kill()
    process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("run", [{"strategy": "ssgd", "learners": 2}, PAIR], ids=["ssgd", "adpsgd"])
def test_a_killed_stage_goes_on(
    run: dict[str, Any], egs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Synchronous learners end with the bits of those that nobody killed, all with those of their
    record."""
    rate = {"base": 0.1, "base_batch": 20, "anneal_after": 20}
    stages = [{**STAGE, "epochs": 30, "learning_rate": rate}]
    config = write_config(tmp_path, [run], stages=stages, checkpoint_minutes=0.001)
    name = load(config).training.runs[0].id
    stage, model, whole = f"{name}-lfmmi", tmp_path / name / "final.pt", tmp_path / "whole"
    assert main(command(config, egs, name, tmp_path / name, None)) == 0
    lines = command(config, egs, stage, tmp_path / stage, model)
    if name == "ssgd-2":
        assert main(command(config, egs, stage, whole, model)) == 0
        shutil.rmtree(next(tmp_path.glob(f"results/checkpoints/tiny/{stage}-*")))
    killed(lines, tmp_path, stage)
    assert not (tmp_path / stage / "final.pt").exists()
    capfd.readouterr()
    assert main(lines) == 0
    assert f"{stage}: learner 0 resumed at step " in capfd.readouterr().err
    final = weights(tmp_path / stage)
    assert json.loads((tmp_path / stage / "summary.json").read_text())["steps"] == 30 * 200 // 20
    if name == "ssgd-2":
        assert torch.equal(final, weights(whole))
    replay = ["replay", "--config", str(config), "--run-id", stage, "--out", str(tmp_path / "r")]
    replay += ["--egs", str(egs / "sequence/lfmmi/train"), "--initial", str(model)]
    assert main(replay) == 0
    assert torch.equal(weights(tmp_path / "r"), final)


@pytest.mark.slow
def test_the_same_bits_again_and_from_other_weights_another_run(egs: Path, tmp_path: Path) -> None:
    config, name = trained(tmp_path, egs, {"strategy": "single"})
    model = tmp_path / name / "final.pt"
    first = weights(tmp_path / "single-lfmmi")
    lines = command(
        config, egs, "single-lfmmi", tmp_path / "single-lfmmi", tmp_path / name / "final.pt"
    )
    assert main(lines) == 0  # nothing to do
    shutil.rmtree(tmp_path / "results")
    assert main(command(config, egs, "single-lfmmi", tmp_path / "b", model)) == 0
    assert torch.equal(weights(tmp_path / "b"), first)
    own = [json.loads((tmp_path / f / "summary.json").read_text()) for f in ("single-lfmmi", "b")]
    assert own[0]["identity"] == own[1]["identity"]
    lines[-1] = str(tmp_path / "single-lfmmi/final.pt")  # goes on from what it made
    assert main([*lines[:-3], str(tmp_path / "c"), *lines[-2:]]) == 0
    later = json.loads((tmp_path / "c/summary.json").read_text())
    assert later["identity"] != own[0]["identity"]


def content(**training: Any) -> dict[str, Any]:
    return {"name": "x", "corpus": {"kind": "builtin"}, "training": training}


def test_runs_seeds_and_rows() -> None:
    slow = {**PAIR, "name": "slow", "launcher": "virtual"}
    config = check(content(runs=[{"seeds": [4, 5]}, PAIR, slow], stages=[STAGE]), "x")
    rows = {row: [run.id for run in runs] for row, runs in config.training.rows.items()}
    assert rows == {
        "single": ["single-s4", "single-s5"],
        "single-lfmmi": ["single-s4-lfmmi", "single-s5-lfmmi"],
        "adpsgd-2": ["adpsgd-2"],
        "adpsgd-2-lfmmi": ["adpsgd-2-lfmmi"],
        "slow": ["slow"],
    }
    settings = settings_of(config, "single-s5-lfmmi")
    assert (settings.seed, settings.training.epochs, settings.training.batch) == (5, 2, 20)
    assert settings.training.learning_rate.base == 0.5
    assert before(config, "single-s5-lfmmi") == run_key(config, "single-s5")
    assert (before(config, "slow"), examples_of(config, "slow")) == ("", "egs")


def test_a_key_has_the_stage_and_what_it_goes_on_from() -> None:
    def keys(**training: Any) -> dict[str, str]:
        config = check(content(**training), "x")
        return {run.id: run_key(config, run.id) for run in config.training.members}

    plain = keys(stages=[STAGE])
    assert keys()["single"] == plain["single"]
    for other in (
        {"stages": [STAGE | {"acoustic_scale": 0.7}]},
        {"stages": [STAGE | {"frames": 77}]},
        {"stages": [STAGE], "runs": [{"name": "single", "epochs": 5}]},  # of cross-entropy
    ):
        assert keys(**other)["single-lfmmi"] != plain["single-lfmmi"]


@pytest.mark.parametrize(
    ("training", "said"),
    [
        ({"stages": [{"criterion": "mpe"}]}, "criterion"),
        ({"stages": [STAGE, STAGE]}, "at most 1"),
        ({"stages": [{"scale": 1}]}, "unknown key 'training.stages.0.scale'"),
        ({"stages": [STAGE | {"batch": 7}], "runs": [PAIR]}, "batch 7 cannot be divided"),
        ({"stages": [STAGE], "runs": [PAIR, {"name": "adpsgd-2-lfmmi"}]}, "two runs have the name"),
    ],
)
def test_wrong_stages_are_refused(training: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        check(content(**training), "x")


def test_realigning_is_cross_entropys() -> None:
    wanted = content(stages=[STAGE]) | {"realign": {"passes": 1, "run": "single-lfmmi"}}
    with pytest.raises(UserError, match="no training run 'single-lfmmi'; there are single"):
        check(wanted, "x")


def told(lines: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of a command that fails."""
    assert main(lines) not in (0, 75)
    return capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.slow
def test_a_fault_is_one_line(egs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, _ = trained(tmp_path, egs, {"strategy": "single"}, epochs=1)
    model, out = tmp_path / "single/final.pt", tmp_path / "out"
    without = command(config, egs, "single-lfmmi", out, None)
    assert "goes on from the weights of 'single'. Give its final.pt" in told(without, capsys)
    needless = command(config, egs, "single", out, model)
    assert "begins with weights of its own. Leave --initial away" in told(needless, capsys)
    missing = command(config, egs, "single-lfmmi", out, tmp_path / "none.pt")
    assert "no such model" in told(missing, capsys)
    wanted = command(config, egs, "single-lfmmi", out, model)
    alone = tmp_path / "alone"
    shutil.copytree(egs / "sequence/lfmmi", alone / "sequence/lfmmi")
    (alone / "sequence/lfmmi/train" / FILE).unlink()
    train = ["train", *wanted[1:]]
    here = [w.replace(str(egs), str(alone)) for w in train]
    assert f"{FILE}: missing. `hadpsgd egs --stage` makes it" in told(here, capsys)
    any_order(PDFS + 1).write(alone / "sequence/lfmmi/train" / FILE)
    assert f"pdf-id {PDFS}, and the examples have {PDFS}" in told(here, capsys)
    larger = yaml.safe_load(config.read_text()) | {"model": {"layers": 2, "cells": 8}}
    config.write_text(yaml.safe_dump(larger))
    assert f"inputs ['logmel'] ({DIM})" in told(train, capsys)


def test_held_out_examples_of_another_length_are_refused(
    egs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of cross-entropy are no sequences: their loss would choose the epoch."""
    config, short = write_config(tmp_path, [{"strategy": "single"}]), tmp_path / "dev"
    short.mkdir()
    features = np.zeros((5, FRAMES - 1, DIM), np.float32)
    labels = np.zeros(features.shape[:2], np.int32)
    write_examples(short, features, labels, pdfs=PDFS, per_shard=5)
    lines = ["train", *command(config, egs, "single", tmp_path / "out", None)[1:]]
    lines[lines.index("--dev-egs") + 1] = str(short)
    assert f"frames {FRAMES - 1}, but the training examples have {FRAMES}" in told(lines, capsys)


def test_what_goes_on_from_a_diverged_run_has_diverged(
    egs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(tmp_path, [{"strategy": "single"}], stages=[STAGE])
    save_diverged(tmp_path / "final.pt", "the held-out loss is nan")
    lines = command(config, egs, "single-lfmmi", tmp_path / "out", tmp_path / "final.pt")
    assert main(lines) not in (0, 75)
    assert "the run before it diverged" in (tmp_path / "out" / FAILED).read_text()
    assert main([*lines, "--accept-divergence"]) == 0
    found = json.loads((tmp_path / "out/summary.json").read_text())
    assert found["diverged"] == "the run before it diverged: the held-out loss is nan"
    assert main([*lines, "--accept-divergence"]) == 0
    assert "nothing to do" in capsys.readouterr().err


@pytest.mark.slow
def test_from_audio_to_the_table(small: Small, tmp_path: Path) -> None:
    """The workflow makes examples and denominator, goes on training, decodes, and has both rows:
    of a network whose steps have three frames."""
    shutil.copytree(small.results, tmp_path / "results", symlinks=True)
    training = yaml.safe_load(small.config.read_text())["training"]
    stage = {"criterion": "lfmmi", "epochs": 1, "batch": 4, "frames": 80}
    (tmp_path / "results/small/wer.md").unlink()
    three = {**ASYNCHRONOUS, "name": "three", "model": {"frames_per_step": 3}}
    file = write(tmp_path, training={**training, "runs": [three], "stages": [stage]})
    table = tmp_path / "results/small/wer.md"
    ran = small.command(
        *("snakemake", "--profile", "local", "--cores", "2", "--configfile", str(file)),
        *("--", str(table)),
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert "| three " in table.read_text() and "| three-lfmmi " in table.read_text()
    key = run_key(load(file), "three-lfmmi")
    model, meta = load_model(tmp_path / "results/small/runs" / key / "final.pt")
    made = json.loads((tmp_path / "results/small/sequence/lfmmi/train/meta.json").read_text())
    assert (made["frames"], meta.num_pdfs) == (80, model.num_pdfs)
    assert meta.model_config.frames_per_step == 3
    assert made["counts"]["padded_frames"] and not made["counts"]["dropped_frames"]
