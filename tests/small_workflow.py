"""The smallest workflow from audio to word error rates, run once a session for several tests.

Just enough training that some words are found.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from hadpsgd.config import load, run_key

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
SYNCHRONOUS = {"strategy": "hadpsgd", "learners": 4, "super_learner": 2, "among": "dpsgd"}
ASYNCHRONOUS = {"strategy": "hadpsgd", "learners": 4, "super_learner": 2}
CONFIG: dict[str, Any] = {
    "name": "small",
    "corpus": {
        "kind": "builtin",
        "train_minutes": 2,
        "dev_minutes": 0.3,
        "test_minutes": 0.3,
        "speakers": 8,
        "lm_sentences": 300,
    },
    "alignment": {"kind": "mono", "gaussians": 120, "iterations": 10},
    "model": {"layers": 1, "cells": 32, "projection": 32},
    "training": {
        "epochs": 8,
        "batch": 8,
        "threads": 1,
        "learning_rate": {"base": 0.2, "base_batch": 16, "anneal_after": 4},
        "runs": [SYNCHRONOUS, ASYNCHRONOUS],
    },
    # of a network that has learnt little, a wider search goes on with a great deal: twice the time
    "decoding": {"beam": 10, "lattice_beam": 3, "max_active": 1000},
    "scoring": {"lm_weights": [8, 10, 12], "word_penalties": [0.0]},
}


@dataclass(frozen=True)
class Small:
    """A results folder and what it was made with."""

    folder: Path
    config: Path

    @property
    def results(self) -> Path:
        """All results."""
        return self.folder / "results"

    @property
    def out(self) -> Path:
        """Those of the config."""
        return self.results / "small"

    @property
    def env(self) -> dict[str, str]:
        """For its commands."""
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        store = f"sqlite:///{self.folder}/mlflow.db"
        return {**os.environ, "PATH": path, "MLFLOW_TRACKING_URI": store, "OMP_NUM_THREADS": "1"}

    def key(self, run: str) -> str:
        """Name of a run's folders."""
        return run_key(load(self.config), run)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the project from the repository."""
        program, *rest = arguments
        return subprocess.run(
            [str(BIN / program), *rest],
            cwd=ROOT,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
        )

    def scored_again(self, run: str, folder: Path, **scoring: Any) -> Path:
        """A copy of all results in which a run is scored with other settings and another language
        model weight than dev chooses; its results folder."""
        results = folder / "copied"
        shutil.copytree(self.results, results)
        content = yaml.safe_load(self.config.read_text())
        config = folder / "later.yaml"
        config.write_text(yaml.safe_dump(content | {"scoring": content["scoring"] | scoring}))
        scores = results / "small/score" / self.key(run)
        tuned = json.loads((scores / "tuned.json").read_text())
        tuned["lm_weight"] = 13.0 if tuned["lm_weight"] == 12.0 else 12.0
        (scores / "tuned.json").write_text(json.dumps(tuned))
        for name in ("dev", "swb", "ch"):
            ran = self.command(
                *("hadpsgd", "score", "--config", str(config), "--out", str(scores / name)),
                *("--decode", str(results / f"small/decode/{self.key(run)}/{name}")),
                *("--data", str(results / f"small/corpus/data/{name}")),
                *("--tuned", str(scores / "tuned.json")),
            )
            assert ran.returncode == 0, ran.stderr
        return results


def write(folder: Path, **changes: Any) -> Path:
    """The config with results in a folder of its own."""
    content = CONFIG | {"results": str(folder / "results")} | changes
    file = folder / "small.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Small:
    """Made with the local profile."""
    folder = tmp_path_factory.mktemp("small")
    made = Small(folder, write(folder))
    ran = made.command(
        *("snakemake", "--profile", "local", "--cores", "2", "--configfile", str(made.config))
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    return made
