"""The workflow on a real Slurm of three nodes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from slurm_cluster import ROOT, Slurm
from small_workflow import CONFIG, SYNCHRONOUS, Small, write

from hadpsgd.config import load, run_key

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
AT_ONCE = ("--slurm-init-seconds-before-status-checks", "2", "--seconds-between-status-checks", "2")


def submitted(slurm: Slurm, config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`snakemake --profile slurm`, asking Slurm more often than on a real cluster."""
    command = ["snakemake", "--profile", "slurm", "--configfile", str(config), *AT_ONCE]
    command += ["--latency-wait", "5", *arguments]
    env = slurm.env | {"MLFLOW_TRACKING_URI": f"sqlite:///{config.parent}/mlflow.db"}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def test_a_partition_that_is_not_there(slurm: Slurm, small: Small) -> None:
    """Said by sbatch, in one line."""
    training = {**CONFIG["training"], "epochs": 3, "runs": [SYNCHRONOUS]}
    folder = small.folder / "partition"
    folder.mkdir()
    config = write(folder, results=str(small.results), training=training)
    key = run_key(load(config), "hadpsgd-2x2-dpsgd")
    ran = submitted(
        *(slurm, config, "--retries", "0", "--default-resources", "slurm_partition=nosuch"),
        *("--", str(small.out / f"runs/{key}/final.pt")),
    )
    assert ran.returncode != 0
    assert "invalid partition specified: nosuch" in ran.stdout + ran.stderr
