"""config/swb300.yaml and swb2000.yaml: the papers' recipe, planned on miniature LDC folders."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from miniature_ldc import Ldc

from hadpsgd.config import check, load
from hadpsgd.config.alignment import KaldiAlignment, Ladder

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
        "layers": 6, "cells": 512, "projection": 256,
        "dropout": 0.0, "input_dropout": 0.0, "output_dropout": 0.0, "frames_per_step": 1,
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


def test_the_sections_for_kaldis_alignments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that stand behind # in swb300.yaml, in place of the ones before them."""
    monkeypatch.setenv("S5C", "/s5c")
    text = (ROOT / "config/swb300.yaml").read_text()
    behind = "\n".join(
        line[2:] for line in text.splitlines() if re.match(r"# (features:|alignment:| )", line)
    )
    sections = yaml.safe_load(behind[behind.index("features:") :])
    assert sections.keys() == {"features", "alignment"}
    config = check(yaml.safe_load(text) | sections, "swb300.yaml")
    assert isinstance(config.alignment, KaldiAlignment)
    assert config.features.imports.fmllr is not None
    assert config.alignment.folders("train") == ["/s5c/exp/tri4_ali_nodup"]


@pytest.mark.parametrize(("name", "runs"), [("swb300", 2), ("swb2000", 1), ("swb300_one_gpu", 1)])
def test_they_are_planned_for_a_cluster(name: str, runs: int, tmp_path: Path) -> None:
    ldc = Ldc(tmp_path / "ldc").make()
    env = {**os.environ, "LDC": str(ldc.root), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    ran = subprocess.run(
        [str(BIN / "snakemake"), "-n", "--quiet", "rules", "--profile", "slurm",
         "--configfile", f"config/{name}.yaml", "--config", f"results={tmp_path}/results"],
        cwd=ROOT, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    said = ran.stdout + ran.stderr
    counts = dict(re.findall(r"^(\w+) +(\d+)$", said, re.MULTILINE))
    wanted = {
        "corpus": 4, "dictionary": 1, "sat": 1, "train": runs, "decode": 3 * runs, "score": 3 * runs
    }  # fmt: skip
    assert {rule: int(counts.get(rule, 0)) for rule in wanted} == wanted
    assert re.search(r"about [\d,.]+ GiB of disk and [\d,.]+ hours of a core", said)
