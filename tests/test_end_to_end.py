"""The workflow as a user runs it: from nothing to a table of word error rates, and again."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


class Workflow:
    """Snakemake on config/tiny.yaml with results of its own."""

    def __init__(self, folder: Path) -> None:
        self.out = folder / "results" / "tiny"
        self.store = f"sqlite:///{folder}/mlflow.db"
        self.command = [
            str(BIN / "snakemake"),
            *("--profile", "local", "--cores", "2", "--configfile", "config/tiny.yaml"),
            *("--config", f"results={folder}/results"),
        ]
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": path, "MLFLOW_TRACKING_URI": self.store}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.command, *arguments],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def key(self, run: str) -> str:
        """Name of a run's folders."""
        return next((self.out / "runs").glob(f"{run}-*")).name

    def planned(self, *overrides: str) -> set[str]:
        """Rules that a run would execute now, or with other settings."""
        ran = self.run("-n", "--config", f"results={self.out.parent}", *overrides)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return set(re.findall(r"^\s*(?:local)?rule (\w+):", ran.stdout + ran.stderr, re.MULTILINE))


@pytest.fixture(scope="module")
def workflow(tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    flow = Workflow(tmp_path_factory.mktemp("end_to_end"))
    ran = flow.run()
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    return flow


def test_it_ends_in_a_table_and_in_mlflow(workflow: Workflow) -> None:
    table = (workflow.out / "wer.md").read_text()
    assert "single" in table
    assert "hadpsgd" in table
    for run in ("single", "hadpsgd-2x2"):
        assert (workflow.out / "errors" / workflow.key(run) / "index.html").is_file()
        for name in ("dev", "swb", "ch"):
            file = workflow.out / "score" / workflow.key(run) / name / "wer.json"
            counts = json.loads(file.read_text())
            errors = counts["sub"] + counts["ins"] + counts["del"]
            assert counts["words"] > 0
            assert counts["wer"] == pytest.approx(100 * errors / counts["words"], abs=0.01)
            assert counts["correct"] + counts["sub"] + counts["del"] == counts["words"]
            # sclite, or hubscr where there is a GLM, if they are installed (CI installs them)
            assert counts["nist"].get("agrees", not counts["nist"]), counts["nist"]
    from mlflow import MlflowClient

    client = MlflowClient(workflow.store)
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    runs = client.search_runs(experiments)
    names = {run.data.tags.get("strategy") for run in runs}
    assert {"single", "hadpsgd"} <= names


def test_a_second_run_does_nothing_and_says_so(workflow: Workflow) -> None:
    again = workflow.run()
    assert again.returncode == 0
    assert "Nothing to be done" in again.stdout + again.stderr


def test_a_changed_setting_reruns_what_hangs_on_it(workflow: Workflow) -> None:
    assert not workflow.planned()
    after_tune = {"score", "error_analysis", "report", "index", "track_scores", "track", "all"}
    after_tune |= {"compare_errors"}
    after_graph = {"decode", "tune", *after_tune}
    assert workflow.planned("graph={self_loop_scale: 0.2}") == {"graph", *after_graph}
    wider = "scoring={word_penalties: [0.0, 0.5]}"
    assert workflow.planned(wider) == {"tune", *after_tune}
    longer = workflow.planned("training={epochs: 5, batch: 16}")
    assert {"train", "decode"} <= longer
    assert not {"corpus", "features", "mono", "egs", "lm", "graph"} & longer


def test_new_language_model_text_reruns_what_hangs_on_it(workflow: Workflow) -> None:
    text = workflow.out / "corpus/lm/train.txt"
    before = text.read_text()
    text.write_text(before + before.splitlines()[0] + "\n")
    planned = workflow.planned()
    wanted = {"lm", "graph", "decode", "tune", "score", "error_analysis", "report"}
    wanted |= {"compare_errors"}
    assert wanted <= planned <= {*wanted, "checked", "index", "track_scores", "track", "all"}
    # one set of one run is enough to see that it does: two minutes less
    scored = workflow.out / f"score/{workflow.key('single')}/dev"
    words = (scored / "wer.json").stat().st_mtime_ns
    ran = workflow.run("--", str(scored))
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert (scored / "wer.json").stat().st_mtime_ns > words


def kill_training(out: Path) -> None:
    """kill -9 of every process of the trainings below `out`, launchers first: they heal ranks."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if {"train", "launch"} & set(words) and any(str(out) in word for word in words):
            found.append(process)
    for process in sorted(found, key=lambda process: "launch" not in process.info["cmdline"]):
        with contextlib.suppress(psutil.NoSuchProcess):  # the launcher's end may have ended it
            process.kill()


def test_a_training_killed_outright_resumes(workflow: Workflow) -> None:
    """kill -9 of launcher and ranks in mid-training; the same command finishes the same run."""
    key = workflow.key("hadpsgd-2x2")
    shutil.rmtree(workflow.out / "runs" / key)
    for checkpoints in (workflow.out / "../checkpoints/tiny").glob("hadpsgd-2x2-*"):
        shutil.rmtree(checkpoints)
    log = workflow.out / f"logs/train.{key}.log"
    log.unlink(missing_ok=True)
    wanted = ("--", str(workflow.out / f"runs/{key}/final.pt"))
    running = subprocess.Popen(
        [*workflow.command, *wanted],
        cwd=ROOT,
        env=workflow.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 900
    while not (log.is_file() and "epoch 2/" in log.read_text()):
        assert running.poll() is None, "the workflow ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.05)
    kill_training(workflow.out)
    assert running.wait(timeout=1500) != 0
    again = workflow.run(*wanted)
    assert again.returncode == 0, again.stdout[-3000:] + again.stderr[-3000:]
    epochs = [float(epoch) for epoch in re.findall(r"epoch ([\d.]+)/", log.read_text())]
    assert epochs
    assert epochs[0] > 1, "it began anew instead of at the checkpoint"
    lines = (workflow.out / f"runs/{key}/metrics.jsonl").read_text().splitlines()
    steps = [row["step"] for row in map(json.loads, lines) if "loss" in row]
    assert steps == sorted(set(steps)), "a step was logged twice or out of order"
