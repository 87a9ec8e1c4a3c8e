"""Training on a real Slurm of three nodes: requeued, resumed, cancelled, without a node."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import time
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
TWO_BY_TWO = {"strategy": "hadpsgd", "learners": 4, "super_learner": 2}


class Training:
    """H-ADPSGD of a small task, two super-learners on two hosts, as one Slurm job."""

    def __init__(self, slurm: Slurm, folder: Path, epochs: int) -> None:
        self.slurm = slurm
        self.folder = folder
        self.out = folder / "out"
        self.log = folder / "job.log"
        self.store = f"sqlite:///{folder}/mlflow.db"
        write_egs(folder / "egs", 400, 1)
        write_egs(folder / "dev", 80, 2)
        self.config = write_config(
            folder,
            [TWO_BY_TWO],
            epochs=epochs,
            learning_rate={"base": 0.01, "base_batch": 40},
            checkpoint_minutes=0.02,
            rendezvous_seconds=120,
            cluster={"learners_per_node": 2},
        )
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

    def requeued(self, times: int, seconds: float = 200, *, left_behind: bool = False) -> None:
        """Wait until it is back in the queue, and let it start at once (Slurm waits 2 minutes).

        With `left_behind`, processes may live on: those of a host that Slurm takes for dead.
        """
        until(lambda: f"Restarts={times} " in self.shown(), seconds, self.explain)
        until(lambda: self.slurm.state(self.job) == "PENDING", seconds, self.explain)
        if not left_behind:
            until(lambda: not self.processes(), seconds, lambda: "\n".join(self.processes()))
        time.sleep(2)  # the hosts forget the former attempt
        self.slurm("scontrol", "update", f"jobid={self.job}", "StartTime=now")

    def times_out_soon(self) -> None:
        """Move the time limit to between one and two minutes from now."""
        minutes = re.search(r" RunTime=\d+:(\d+):\d+ ", self.shown())
        assert minutes, self.explain()
        limit = int(minutes[1]) + 2
        self.slurm("scontrol", "update", f"jobid={self.job}", f"TimeLimit={limit}")

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


def test_preempted_and_timed_out_it_goes_on_in_the_same_mlflow_run(
    slurm: Slurm, tmp_path: Path
) -> None:
    training = Training(slurm, tmp_path, epochs=600)
    training.submit("--partition=preemptible", "--time=60", "--signal=USR1@50")
    training.trains()
    first = identity.read(training.out)
    quick = ("-pmain", "-N3", "--exclusive", "--output=/dev/null", "--wrap=sleep 1")
    urgent = slurm("sbatch", "--parsable", *quick).strip()
    slurm.wait(urgent)
    training.requeued(1)
    preempted_at = training.step()
    training.trains()
    training.times_out_soon()
    training.requeued(2)  # told by USR1
    assert preempted_at < training.step() < 6000, "too fast for this test"
    slurm("scontrol", "update", f"jobid={training.job}", "TimeLimit=60")
    assert slurm.wait(training.job, seconds=200) == "COMPLETED", training.explain()
    assert (training.out / "final.pt").is_file()
    steps = [row["step"] for row in training.rows()]
    assert steps == sorted(set(steps)) and steps[-1] == 6000
    losses = [row["loss"] for row in training.rows()]
    assert all(after < before + 0.3 for before, after in itertools.pairwise(losses))
    assert first is not None and identity.read(training.out) == first
    store = Store(training.store, tmp_path / "results/tracking")
    runs = store.client.search_runs([e.experiment_id for e in store.client.search_experiments()])
    assert [run.info.status for run in runs] == ["FINISHED"]
    history = store.client.get_metric_history(runs[0].info.run_id, "loss")
    assert sorted(point.step for point in history) == steps


def test_a_node_drained_one_that_dies_and_scancel(slurm: Slurm, tmp_path: Path) -> None:
    training = Training(slurm, tmp_path, epochs=100_000)
    training.submit("--partition=main", "--time=60")
    training.trains()
    nodes = slurm("squeue", "-h", "-j", training.job, "-o", "%N").strip()
    other = slurm("scontrol", "show", "hostnames", nodes).split()[1]
    try:
        slurm("scontrol", "update", f"nodename={other}", "state=drain", "reason=test")
        training.trains()  # a drained node finishes what it has
        slurm("scontrol", "update", f"nodename={other}", "state=down", "reason=test")
        training.requeued(1, left_behind=True)
        assert "lost a host" in training.log.read_text()
        before = training.step()
        training.trains()
        assert other not in slurm("squeue", "-h", "-j", training.job, "-o", "%N")
        steps = [row["step"] for row in training.rows()]
        assert steps == sorted(set(steps)) and steps[-1] > before
    finally:
        slurm("scontrol", "update", f"nodename={other}", "state=resume")
    assert len(training.processes()) > 4
    before = len(training.log.read_text())
    slurm("scancel", training.job)
    assert slurm.wait(training.job, seconds=150) == "CANCELLED"
    until(lambda: not training.processes(), 90, lambda: "\n".join(training.processes()))
    said = training.log.read_text()[before:]
    assert "start again" not in said and "back into the queue" not in said


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
