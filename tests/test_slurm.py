"""Training on a real Slurm of three nodes: requeued, resumed, cancelled, without a node."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from slurm_cluster import ROOT, Slurm, until
from small_workflow import CONFIG, SYNCHRONOUS, Small, write
from training_data import write_config, write_egs

from hadpsgd.config import load, run_key
from hadpsgd.tracking import identity
from hadpsgd.tracking.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
TWO_BY_TWO: dict[str, Any] = {"strategy": "hadpsgd", "learners": 4, "super_learner": 2}
# Most of the time it waits: the machine is shared with other tests.
INJECTED = {"injected": {"slow_learners": dict.fromkeys(range(4), 4.0)}}
RESUMED = "learner 0 resumed at step"


class Training:
    """H-ADPSGD of a small task, two super-learners on two hosts, as one Slurm job."""

    def __init__(self, slurm: Slurm, folder: Path) -> None:
        self.slurm = slurm
        self.folder = folder
        self.log = folder / "job.log"
        self.store = f"sqlite:///{folder}/mlflow.db"
        write_egs(folder / "egs", 400, 1)
        write_egs(folder / "dev", 80, 2)
        self.config = write_config(
            folder,
            [TWO_BY_TWO | INJECTED],
            epochs=100_000,
            learning_rate={"base": 0.01, "base_batch": 40},
            checkpoint_minutes=0.02,
            rendezvous_seconds=120,
            cluster={"learners_per_node": 2},
        )
        self.out = folder / "results/tiny/runs" / run_key(load(self.config), "hadpsgd-2x2")
        self.job = ""

    def submit(self, *options: str) -> None:
        """As the executor does with what the rule asks for."""
        launch = f"hadpsgd launch --config {self.config} --run-id hadpsgd-2x2"
        launch += f" --egs {self.folder}/egs --dev-egs {self.folder}/dev --out {self.out}"
        command = ["sbatch", "--parsable", "--nodes=2", "--ntasks=2", "--cpus-per-task=2"]
        command += ["--mem=4000", "--requeue", "--no-kill", "--open-mode=append"]
        command += [f"--output={self.log}", *options, "--wrap", launch]
        env = self.slurm.env | {"MLFLOW_TRACKING_URI": self.store}
        done = subprocess.run(
            command, env=env, cwd=self.folder, capture_output=True, text=True, check=True
        )
        self.job = done.stdout.strip()

    def rows(self) -> list[dict[str, Any]]:
        """Of the training curve so far."""
        file = self.out / "metrics.jsonl"
        lines = file.read_text().splitlines() if file.is_file() else []
        return [row for line in lines if "loss" in (row := json.loads(line))]

    def step(self) -> int:
        """The last one that was told."""
        rows = self.rows()
        return rows[-1]["step"] if rows else 0

    def trains(self, seconds: float = 200) -> None:
        """Wait until it has got further."""
        before = self.step()
        until(lambda: self.step() > before, seconds, self.explain)

    def requeued(self, times: int, seconds: float = 200) -> None:
        """Wait until it has been put back into the queue so often."""
        until(lambda: f"Restarts={times} " in self.shown(), seconds, self.explain)

    def resumes(self, times: int, seconds: float = 200) -> None:
        """Wait until it has come back from the queue so often, and trains again."""
        self.requeued(times, seconds)
        until(lambda: self.said(RESUMED) == times, seconds, self.explain)
        self.trains(seconds)

    def times_out_soon(self) -> None:
        """Move the time limit to between one and two minutes from now; the signal comes before."""
        minutes = re.search(r" RunTime=\d+:(\d+):\d+ ", self.shown())
        assert minutes, self.explain()
        limit = int(minutes[1]) + 2
        self.slurm("scontrol", "update", f"jobid={self.job}", f"TimeLimit={limit}")

    def said(self, words: str) -> int:
        """How often its output has them."""
        return self.log.read_text().count(words) if self.log.is_file() else 0

    @contextmanager
    def without_its_second_node(self, *states: str) -> Iterator[None]:
        """Drain the node, or call it dead, while the block runs; the job must leave it.

        A dead one that answers comes back of itself, unless it is drained, too.
        """
        nodes = self.slurm("squeue", "-h", "-j", self.job, "-o", "%N").strip()
        node = self.slurm("scontrol", "show", "hostnames", nodes).split()[1]
        for state in states:
            self.slurm("scontrol", "update", f"nodename={node}", f"state={state}", "reason=test")
        try:
            yield
            now = self.slurm("squeue", "-h", "-j", self.job, "-o", "%N").strip()
            assert node not in self.slurm("scontrol", "show", "hostnames", now).split()
        finally:
            self.slurm("scontrol", "update", f"nodename={node}", "state=resume")

    def tracked_steps(self) -> list[int]:
        """Steps of the loss in MLflow, where there must be one run."""
        track = ["hadpsgd", "track", "--config", str(self.config)]
        env = self.slurm.env | {"MLFLOW_TRACKING_URI": self.store}
        subprocess.run(track, env=env, cwd=self.folder, check=True)  # what the end cut off
        client = Store(self.store, self.folder / "results/tracking").client
        runs = client.search_runs([e.experiment_id for e in client.search_experiments()])
        assert len(runs) == 1
        history = client.get_metric_history(runs[0].info.run_id, "loss")
        return sorted(point.step for point in history)

    def shown(self) -> str:
        """What Slurm says of the job."""
        return self.slurm("scontrol", "show", "job", self.job, "-o")

    def explain(self) -> str:
        """For a test that fails."""
        return f"{self.shown()}\n{self.log.read_text()[-3000:] if self.log.is_file() else ''}"

    def processes(self) -> list[str]:
        """Command lines of what runs of it."""
        lines = (" ".join(p.info["cmdline"] or []) for p in psutil.process_iter(["cmdline"]))
        return [line for line in lines if str(self.config) in line]


def test_whatever_slurm_does_to_it_the_same_mlflow_run_goes_on(
    slurm: Slurm, tmp_path: Path
) -> None:
    """Preempted, on a drained node, out of time, without a node, cancelled."""
    training = Training(slurm, tmp_path)
    training.submit("--partition=preemptible", "--time=60", "--signal=USR1@110")
    training.trains()
    first = identity.read(training.out)
    assert first is not None
    quick = ("-pmain", "-N3", "--exclusive", "--output=/dev/null", "--wrap=sleep 1")
    slurm.wait(slurm("sbatch", "--parsable", *quick).strip(), seconds=200)
    training.resumes(1)

    with training.without_its_second_node("drain"):
        training.trains()  # a drained node finishes what it has
        training.times_out_soon()
        training.requeued(2)
        assert training.said("stopped at step") == 2  # told by SIGTERM, then by USR1
        slurm("scontrol", "update", f"jobid={training.job}", "TimeLimit=60")
        training.resumes(2)
    with training.without_its_second_node("drain", "down"):
        training.resumes(3)
        assert training.said("lost a host") == 1

    assert len(training.processes()) > 4
    before = len(training.log.read_text())
    slurm("scancel", training.job)
    assert slurm.wait(training.job, seconds=200) == "CANCELLED"
    until(lambda: not training.processes(), 200, lambda: "\n".join(training.processes()))
    said = training.log.read_text()[before:]
    assert "start again" not in said and "back into the queue" not in said

    steps = [row["step"] for row in training.rows()]
    assert steps == sorted(set(steps))
    losses = [row["loss"] for row in training.rows()]
    assert all(after < before + 0.3 for before, after in itertools.pairwise(losses))
    assert identity.read(training.out) == first
    assert training.tracked_steps() == steps


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
