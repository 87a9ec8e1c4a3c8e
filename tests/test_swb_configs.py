"""config/swb300.yaml and swb2000.yaml: the papers' recipe, planned on miniature LDC folders."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from miniature_ldc import Ldc

from hadpsgd.config import load
from hadpsgd.config.alignment import Ladder

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent


@pytest.mark.parametrize(
    ("name", "learners", "batch"),
    [("swb300", 64, 8192), ("swb2000", 64, 8192), ("swb300_one_gpu", 1, 256)],
)
def test_the_recipe_of_the_papers(name: str, learners: int, batch: int) -> None:
    config = load(ROOT / f"config/{name}.yaml")
    assert config.features.input == ["fmllr", "ivector", "logmel"]
    assert config.model.model_dump() == {
        "layers": 6, "cells": 512, "projection": 256, "dropout": 0.0
    }  # fmt: skip
    assert isinstance(config.alignment, Ladder)
    assert config.alignment.sat.leaves == 32_000 and config.egs.frames == 21
    run = config.training.members[-1]
    strategy = ("hadpsgd", 64, 8) if learners > 1 else ("single", 1, 1)
    assert (run.strategy, run.learners, run.super_learner) == strategy
    training, rate = config.training, config.training.learning_rate
    warmup = 10 if learners > 1 else 0
    assert (training.batch, training.epochs, rate.warmup_epochs) == (batch, 16, warmup)
    peak = rate.base * training.batch / rate.base_batch
    assert peak == pytest.approx(0.1 * batch / 256) and rate.anneal_after == 10


def test_2000_hours_are_planned_for_a_cluster(tmp_path: Path) -> None:
    ldc = Ldc(tmp_path / "ldc").make()
    env = {**os.environ, "LDC": str(ldc.root), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    ran = subprocess.run(
        [str(BIN / "snakemake"), "-n", "--quiet", "rules", "--profile", "slurm",
         "--configfile", "config/swb2000.yaml", "--config", f"results={tmp_path}/results"],
        cwd=ROOT, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    counts = dict(re.findall(r"^(\w+) +(\d+)$", ran.stdout + ran.stderr, re.MULTILINE))
    wanted = {"corpus": 4, "dictionary": 1, "sat": 1, "train": 1, "decode": 3, "score": 3}
    assert {name: int(counts.get(name, 0)) for name in wanted} == wanted
