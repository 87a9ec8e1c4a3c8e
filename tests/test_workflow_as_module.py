"""The workflow as a module of another workflow, on this host and on Slurm."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import yaml
from snakemake_calls import run, submitted

ROOT = Path(__file__).resolve().parents[1]


def module(folder: Path, **changes: object) -> None:
    """Another workflow that uses ours."""
    (folder / "Snakefile").write_text(f"""
configfile: "mine.yaml"

module speech:
    snakefile: "{ROOT}/workflow/Snakefile"
    config: config["speech"]

use rule * from speech as speech_*

use rule train from speech as speech_train with:
    retries: 0

rule mine:
    default_target: True
    input: rules.speech_report.output.wer
    output: "best.txt"
    shell: "tail -1 {{input}} > {{output}}"

rule nothing_of_speech:
    output: "other.txt"
    shell: "touch {{output}}"

onstart:
    shell("ls -A results/*/ > mine.starts")
""")
    inner = yaml.safe_load((ROOT / "config/tiny.yaml").read_text()) | changes
    (folder / "mine.yaml").write_text(yaml.safe_dump({"speech": inner}))


def test_a_module_of_another_workflow(tmp_path: Path) -> None:
    module(tmp_path)
    shown = run("snakemake", "-n", cwd=tmp_path)
    planned = set(re.findall(r"^\s*(?:local)?rule (\w+):", shown, re.MULTILINE))
    assert {"mine", "speech_train", "speech_decode", "speech_report"} <= planned
    assert "speech_track" not in planned  # nobody asked for it


def test_a_module_starts_as_the_workflow_does(tmp_path: Path) -> None:
    """Snakemake runs the main Snakefile's hooks alone; ours come before them."""
    module(tmp_path)
    run("snakemake", "--cores", "1", "other.txt", cwd=tmp_path)
    assert ".workflow.lock" in (tmp_path / "mine.starts").read_text().split()


def test_a_module_that_wants_too_many_hosts(tmp_path: Path) -> None:
    """Said before anything is submitted; Slurm would let the training wait for ever."""
    runs = [{"strategy": "ssgd", "learners": 8}]
    module(tmp_path, training={"runs": runs})
    (tmp_path / "site.yaml").write_text("learners_per_node: 2\n")
    said = refused_by_slurm(tmp_path, "site=site.yaml")
    assert re.match(r"run 'ssgd-8-\w+' wants 4 hosts, partition 'small' gives 2 at most", said)


def test_slurm_without_a_site(tmp_path: Path) -> None:
    """`--config` hides the profile's: all learners would share one host, without GPUs."""
    module(tmp_path)
    assert refused_by_slurm(tmp_path, "name=mine").startswith("no site is named")


def refused_by_slurm(folder: Path, config: str) -> str:
    """The one line of a workflow that may not start on Slurm; nothing is submitted."""
    scontrol = folder / "bin" / "scontrol"
    scontrol.parent.mkdir()
    scontrol.write_text("#!/bin/sh\necho PartitionName=small TotalNodes=3 MaxNodes=2\n")
    scontrol.chmod(0o755)
    done = subprocess.run(
        [
            *(sys.executable, str(ROOT / "tests/sbatch_lines.py"), "--executor", "slurm"),
            *("--jobs", "9", "--default-resources", "slurm_partition=small"),
            *("--config", config),
        ],
        cwd=folder,
        env={**os.environ, "PATH": f"{scontrol.parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and done.stdout.strip() == "", done.stdout
    said = done.stderr.split("WorkflowError:\n")[1].strip().splitlines()
    assert len(said) == 2 and "File" in said[1], done.stderr[-2000:]  # where it was raised
    assert not (folder / "mine.starts").exists()
    return said[0]


def test_a_module_on_slurm_asks_for_the_same(tmp_path: Path) -> None:
    """The profile names no rule: another workflow may have renamed all of them."""
    module(tmp_path)
    where = ("--default-resources", "slurm_account=a", "slurm_partition=p")
    slurm = ("--profile", str(ROOT / "profiles/slurm"), *where, "--until", "speech_train")
    lines = submitted(*slurm, cwd=tmp_path).splitlines()
    train = [line for line in lines if "rule_speech_train_" in line]
    assert train and all(line.endswith(" --signal=USR1@120 --no-kill") for line in train)
    many = [line for line in lines if re.search("rule_speech_(features|mono|align|egs)_", line)]
    assert many and all("--cpus-per-task=8" in line for line in many)
