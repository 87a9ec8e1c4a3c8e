"""A real Slurm of three nodes: the whole workflow; training requeued, resumed, cancelled."""

from __future__ import annotations

import itertools
import json
import re
import shutil
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

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
TWO_BY_TWO: dict[str, Any] = {"strategy": "hadpsgd", "learners": 4, "super_learner": 2}
# Most of the time it waits: the machine is shared with other tests.
INJECTED = {"injected": {"slow_learners": dict.fromkeys(range(4), 4.0)}}
RESUMED = "learner 0 resumed at step"


def nodes_of(slurm: Slurm, job: str) -> list[str]:
    """On which a job runs."""
    nodes = slurm("squeue", "-h", "-j", job, "-o", "%N").strip()
    return slurm("scontrol", "show", "hostnames", nodes).split()


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
            site={"learners_per_node": 2, "rendezvous_seconds": 120},
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
        node = nodes_of(self.slurm, self.job)[1]
        for state in states:
            self.slurm("scontrol", "update", f"nodename={node}", f"state={state}", "reason=test")
        try:
            yield
            assert node not in nodes_of(self.slurm, self.job)
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


def submission(config: Path, *arguments: str) -> list[str]:
    """`snakemake --profile slurm`, asking Slurm more often than on a real cluster."""
    site = config.with_name("site.yaml")
    site.write_text("learners_per_node: 2\n")
    command = ["snakemake", "--profile", "slurm", "--configfile", str(config), *AT_ONCE]
    command += ["--config", f"site={site}"]
    return [*command, "--latency-wait", "5", *arguments]


def environment(slurm: Slurm, config: Path) -> dict[str, str]:
    """With a store beside the config."""
    return slurm.env | {"MLFLOW_TRACKING_URI": f"sqlite:///{config.parent}/mlflow.db"}


def test_from_features_to_word_errors_on_two_nodes_as_on_one(
    slurm: Slurm, small: Small, tmp_path: Path
) -> None:
    """H-ADPSGD, 2 super-learners of 2, synchronous: weights and words of the local profile's run.

    One of the two nodes is drained while it trains. Jobs wait and run while the config is edited:
    to other runs and another batch, then to something that is no YAML.
    """
    config = write(tmp_path, training={**CONFIG["training"], "runs": [SYNCHRONOUS]})
    out = tmp_path / "results/small"
    for part in ("corpus", "lang", "feats/mfcc", "ali", "lm", "graph"):
        shutil.copytree(small.out / part, out / part)
    key = small.key("hadpsgd-2x2-dpsgd")
    score = f"score/{key}/swb"
    log = tmp_path / "log"
    with log.open("w") as stream:
        running = subprocess.Popen(
            submission(config, "--set-threads", "features=1", "--", str(out / score)),
            cwd=ROOT,
            env=environment(slurm, config),
            stdout=stream,
            stderr=stream,
        )
    until(lambda: (out / "configs").is_dir() or running.poll() is not None, 120, log.read_text)
    write(tmp_path, training={**CONFIG["training"], "batch": 16, "runs": [{"name": "other"}]})
    last_rank = out / f"logs/train.{key}/rank-3.log"
    until(lambda: last_rank.is_file() or running.poll() is not None, 1500, log.read_text)
    jobs = [row.split() for row in slurm("squeue", "-h", "-o", "%D %i").splitlines()]
    (training,) = [job for nodes, job in jobs if nodes == "2"]
    config.write_text("name: [small\n")
    node = nodes_of(slurm, training)[1]
    slurm("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
    try:
        assert running.wait(timeout=1500) == 0, log.read_text()[-5000:]
        assert "drain" in slurm("sinfo", "-h", "-n", node, "-o", "%T")
    finally:
        running.kill()
        slurm("scontrol", "update", f"nodename={node}", "state=resume")
    done = (slurm.folder / "log/jobcomp.txt").read_text().splitlines()
    assert any("NodeCnt=2" in line and "COMPLETED" in line for line in done)
    ours, theirs = (
        json.loads((folder / f"runs/{key}/summary.json").read_text())["weights"]
        for folder in (small.out, out)
    )
    assert ours == theirs
    for name in ("wer.json", "ctm"):
        assert (out / score / name).read_bytes() == (small.out / score / name).read_bytes()
    assert json.loads((out / score / "wer.json").read_text())["wer"] < 100


@pytest.mark.parametrize(
    ("run", "partition", "said"),
    [
        (SYNCHRONOUS, "nosuch", "invalid partition specified: nosuch"),  # by sbatch
        (
            SYNCHRONOUS | {"learners": 8},  # where Slurm would let it wait for ever
            "main",
            "wants 4 hosts, partition 'main' gives 3 at most",
        ),
    ],
)
def test_a_partition_that_will_not_do(
    run: dict[str, Any], partition: str, said: str, slurm: Slurm, small: Small
) -> None:
    training = {**CONFIG["training"], "epochs": 3, "runs": [run]}
    folder = small.folder / partition
    folder.mkdir()
    config = write(folder, results=str(small.results), training=training)
    (key,) = [run_key(load(config), one.id) for one in load(config).training.runs]
    options = ("--retries", "0", "--default-resources", f"slurm_partition={partition}")
    ran = subprocess.run(
        submission(config, *options, "--", str(small.out / f"runs/{key}/final.pt")),
        cwd=ROOT,
        env=environment(slurm, config),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode != 0
    assert said in ran.stdout + ran.stderr
