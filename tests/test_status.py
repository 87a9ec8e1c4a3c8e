"""`hadpsgd status`: a workflow of a few rules is watched as it runs, fails and ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from slurm_cluster import Slurm, until
from status_data import config, row, status

from hadpsgd.status.jobs import FILE

BIN = Path(sys.executable).parent
PATIENCE = 200.0
SNAKEFILE = """
from pathlib import Path
from hadpsgd.starting import before_start, hold
from hadpsgd.status import journal

OUT = Path("results/few")

def starts():
    hold(OUT)
    journal.record(workflow, out=OUT, snapshot=OUT / "config.yaml")

before_start(workflow, starts)

rule all:
    input: "after_gate", "after_failure"

rule quick:
    output: "quick"
    shell: "touch {output}"

rule gate:
    input: "quick"
    output: "gate"
    log: "gate.log"
    priority: 1.5
    shell: "echo 'gate: 3 of 9 doors in 1 s, 3.0/s, 2 s left' > {log};"
           " while test ! -e open; do sleep 0.1; done; touch {output}"

rule failure:
    output: "failure"
    log: "failure.log"
    shell: "test -e whole && touch {output}"

rule after_gate:
    input: "gate"
    output: "after_gate"
    shell: "touch {output}"

rule after_failure:
    input: "failure"
    output: "after_failure"
    shell: "touch {output}"
"""


@contextmanager
def workflow(
    folder: Path, *arguments: str, env: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """The workflow, running."""
    (folder / "Snakefile").write_text(SNAKEFILE)
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    options = arguments or ("--cores", "2")
    process = subprocess.Popen(
        [str(BIN / "snakemake"), "--nolock", "--keep-going", "--rerun-incomplete", *options],
        cwd=folder,
        env=env or {**os.environ, "PATH": path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_workflow_from_its_first_start_to_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config(tmp_path)
    assert "few: never started" in status(tmp_path, capsys)[0]
    assert not (tmp_path / "results").exists()

    def shows(text: str) -> bool:
        return text in status(tmp_path, capsys)[0]

    with workflow(tmp_path) as first:
        until(lambda: shows("running; 1 of 6 jobs done, 1 running, 1 failed, 3 left"), PATIENCE)
        # the job's first line comes after its start
        until(lambda: row(status(tmp_path, capsys), "running").endswith("2 s left"), PATIENCE)
        lines = status(tmp_path, capsys)
        assert f"by process {first.pid} on " in lines[1]
        assert row(lines, "running").startswith("gate  here  ")
        assert row(lines, "running").endswith("2 s left")
        assert row(lines, "failed") == "failure  failure.log"
        assert row(lines, "left") == "1 after_gate"
        assert row(lines, "not made, since what they need failed") == "1 after_failure, 1 all"
    recorded = (tmp_path / "results/few" / FILE).read_text()
    assert '"priority":1.5' in recorded.replace(" ", "")  # of it hangs what is next
    assert shows("failed ")
    assert row(status(tmp_path, capsys), "interrupted") == "gate  gate.log"
    (tmp_path / "open").touch()
    with workflow(tmp_path) as second:
        assert second.wait(PATIENCE) == 1
    lines = status(tmp_path, capsys)
    assert "3 of 6 jobs done, 1 failed, 3 left" in lines[0] and "running" not in lines[0]
    (tmp_path / "whole").touch()
    with workflow(tmp_path) as third:
        assert third.wait(PATIENCE) == 0
    assert status(tmp_path, capsys)[0] == "few: finished; all 6 jobs done"


def test_a_job_of_slurm_has_its_number_and_host(
    slurm: Slurm,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config(tmp_path)
    monkeypatch.setenv("PATH", slurm.env["PATH"])
    for name, value in slurm.env.items():
        monkeypatch.setenv(name, value)
    options = ["--executor", "slurm", "--jobs", "2", "--slurm-status-command", "squeue"]
    options += ["--slurm-init-seconds-before-status-checks", "2"]
    (tmp_path / "whole").touch()
    with workflow(tmp_path, *options, "gate", env=slurm.env):

        def seen() -> str:
            lines = status(tmp_path, capsys)
            return row(lines, "running") if "running:" in lines else ""

        until(lambda: seen().startswith("gate") and "running on" in seen(), PATIENCE, seen)
        number, host = slurm("squeue", "-h", "-t", "RUNNING", "-o", "%i %N").split()
        assert seen().startswith(f"gate  Slurm job {number}, running on {host}  ")
        (tmp_path / "open").touch()
        until(lambda: "finished; all" in status(tmp_path, capsys)[0], PATIENCE)


def test_jobs_of_a_quiet_workflow_finish(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config(tmp_path)
    (tmp_path / "open").touch()
    with workflow(tmp_path, "--cores", "2", "--quiet") as process:
        assert process.wait(PATIENCE) == 1
    lines = status(tmp_path, capsys)
    assert "failed " in lines[0] and "3 of 6 jobs done, 1 failed, 3 left" in lines[0]
    assert row(lines, "failed") == "failure  failure.log"
    assert "interrupted:" not in lines


def test_torch_is_not_loaded() -> None:
    code = "import sys, hadpsgd.status.command; print({'torch', 'snakemake'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
