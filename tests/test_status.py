"""`hadpsgd status`: a workflow of a few rules is watched as it runs, fails and ends."""

from __future__ import annotations

import errno
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from slurm_cluster import Slurm, until

from hadpsgd.cli import main
from hadpsgd.locks import locked
from hadpsgd.progress import counted, last_line, of_speech
from hadpsgd.run_folder import LAUNCH_LOCK, WORKFLOW_LOCK
from hadpsgd.status.estimate import Times, together
from hadpsgd.status.jobs import FILE, Happened, Jobs, Planned, Start
from hadpsgd.status.screen import Screen
from hadpsgd.tracking import metrics_file

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


def config(folder: Path) -> Path:
    """A config whose results folder the workflow uses."""
    file = folder / "few.yaml"
    content = {"name": "few", "results": str(folder / "results"), "corpus": {"kind": "builtin"}}
    file.write_text(yaml.safe_dump(content))
    return file


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


def status(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What the command prints."""
    assert main(["status", "--config", str(folder / "few.yaml")]) == 0
    return capsys.readouterr().out.splitlines()


def row(lines: list[str], title: str) -> str:
    """The first row of a part."""
    return lines[lines.index(f"{title}:") + 1].strip()


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


def recorded(out: Path, *rows: Start | Planned | Happened) -> None:
    """What a workflow has recorded."""
    out.mkdir(parents=True, exist_ok=True)
    (out / FILE).write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows))


@pytest.mark.parametrize(
    "said, so_far, left",
    [
        ("PENDING||0:00", "0 s so far", "about 60 min left"),
        ("RUNNING|n1|10:00", "10 min so far", "about 50 min left"),
        ("RUNNING|n1|1-00:00:10", "24.0 h so far", "about 0 s left"),
    ],
)
def test_a_job_of_slurm_counts_from_its_start_not_its_submission(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    said: str,
    so_far: str,
    left: str,
) -> None:
    """Submitted two hours ago; it takes one."""
    config(tmp_path)
    (tmp_path / "squeue").write_text(f"#!/bin/sh\necho '7|{said}'\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "b.tsv").write_text("s\th:m:s\tmax_rss\n3600\t1:00:00\t-\n")
    ago = time.time() - 7200
    start = Start(
        time=ago, folder=str(tmp_path), executor="slurm", slots=2, remote=True, snapshot=""
    )
    out = tmp_path / "results" / "few"
    recorded(
        *(out, start, planned("1", benchmark="b.tsv")),
        Happened(job="1", what="started", time=ago),
        Happened(job="1", what="submitted", time=ago, external="7"),
    )
    with locked(out / WORKFLOW_LOCK, "process 1"):
        lines = status(tmp_path, capsys)
    assert f"; {left}" in lines[0]
    assert so_far in row(lines, "running") and left in row(lines, "running")


def planned(job: str, after: str = "", threads: int = 1, **changes: object) -> Planned:
    """A job whose rule is its name."""
    fields: dict[str, object] = {
        "job": job,
        "rule": job,
        "wildcards": {},
        "needed": True,
        "after": list(after),
        "threads": threads,
        "priority": 0,
        "outputs": [],
        "logs": [],
        "benchmark": "",
    }
    return Planned(**(fields | changes))  # type: ignore[arg-type]


def jobs(folder: Path, *those: Planned, slots: int = 2) -> Jobs:
    """Of a start."""
    start = Start(
        time=0.0, folder=str(folder), executor="local", slots=slots, remote=False, snapshot=""
    )
    return Jobs(start, {job.job: job for job in those})


class TestTogether:
    def test_by_hand(self, tmp_path: Path) -> None:
        """a (5 s left) and b (2 s) run on two cores; c needs b, d needs both cores and a."""
        known = jobs(tmp_path, *map(planned, "ab"), planned("c", "b"), planned("d", "a", 2))
        found = together({"a": 5.0, "b": 2.0}, {"c": 4.0, "d": 1.0}, known, threads=True)
        assert found == 7.0  # c until 6, then d

    def test_those_of_high_priority_first(self, tmp_path: Path) -> None:
        """The long one first: 3 s. The short ones first: 1 s more."""
        for priority, seconds in ((1, 3.0), (0, 4.0)):
            long = planned("z", priority=priority)
            known = jobs(tmp_path, planned("a"), planned("b"), long)
            assert together({}, {"a": 1.0, "b": 1.0, "z": 3.0}, known, threads=True) == seconds

    def test_one_core_adds_up_and_many_go_as_long_as_the_longest_chain(
        self, tmp_path: Path
    ) -> None:
        random = np.random.default_rng(1)
        names = [chr(ord("a") + i) for i in range(12)]
        before = {name: names[:i] for i, name in enumerate(names)}
        after = {n: "".join(o for o in before[n] if random.random() < 0.3) for n in names}
        seconds = {name: float(random.integers(1, 10)) for name in names}
        known = [planned(name, after[name]) for name in names]
        one = together({}, seconds, jobs(tmp_path, *known, slots=1), threads=True)
        assert one == sum(seconds.values())
        chains = [
            sum(seconds[name] for name in chain)
            for size in range(1, len(names) + 1)
            for chain in itertools.combinations(names, size)
            if all(first in after[second] for first, second in itertools.pairwise(chain))
        ]
        many = together({}, seconds, jobs(tmp_path, *known, slots=99), threads=True)
        assert many == max(chains)


class TestTimes:
    def benchmark(self, folder: Path, name: str, seconds: float) -> str:
        (folder / name).write_text(f"s\th:m:s\tmax_rss\n{seconds}\t0:00:01\t-\n")
        return name

    def decode(self, run: str, name: str) -> Planned:
        return planned(
            f"{run}/{name}",
            rule="decode",
            wildcards={"run": run, "set": name},
            benchmark=f"decode.{run}.{name}.tsv",
        )

    def test_the_job_itself_then_the_same_set_then_the_rule(self, tmp_path: Path) -> None:
        for name, seconds in (("a-lr0.1.dev", 1), ("a-lr0.1.swb", 10), ("b.dev", 3), ("b.swb", 20)):
            self.benchmark(tmp_path, f"decode.{name}.tsv", seconds)
        self.benchmark(tmp_path, "decode_gmm.a.swb.tsv", 1000)
        (tmp_path / "decode.half.swb.tsv").write_text("s\th:m:s")  # just being written
        times = Times(jobs(tmp_path))
        assert times.of(self.decode("a-lr0.1", "swb")) == 10.0
        assert times.of(self.decode("new", "swb")) == 15.0
        assert times.of(self.decode("new", "ch")) == 6.5
        assert times.of(planned("x")) is None

    def test_without_benchmarks_what_this_start_took(self, tmp_path: Path) -> None:
        known = jobs(tmp_path, planned("1", rule="track"), planned("2", rule="track"))
        known.began["1"] = Happened(job="1", what="started", time=10.0)
        known.last["1"] = Happened(job="1", what="finished", time=14.0)
        assert Times(known).of(known.planned["2"]) == 4.0


def test_a_training_tells_by_its_epochs(tmp_path: Path) -> None:
    """Ten seconds an epoch, two of six are done; the benchmark of another run does not count."""
    run = tmp_path / "runs" / "one"
    run.mkdir(parents=True)
    rows = [
        {"step": n, "epoch": n / 5, "whole": {"epochs": 6}, "loss": 1.0, "seconds": 2.0 * n}
        for n in range(1, 11)
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(r | {"time": 0}) + "\n" for r in rows))
    job = planned("1", rule="train", outputs=["runs/one/final.pt"])
    known = jobs(tmp_path, job)
    known.began["1"] = known.last["1"] = Happened(job="1", what="started", time=100.0)
    screen = Screen("x", known, holder="process 1", now=120.0, places={})
    assert screen.summary() == ("x: running; 0 of 1 jobs done, 1 running, 0 left; about 40 s left")
    assert row(screen.lines(), "running").split("  ")[-2:] == ["about 40 s left", "epoch 2.00 of 6"]


def test_a_failed_training_tells_what_became_of_it(tmp_path: Path) -> None:
    """It says so in its log; one whose shell alone was killed goes on."""
    run = tmp_path / "runs" / "one"
    run.mkdir(parents=True)
    job = planned("1", rule="train", outputs=["runs/one/final.pt"], logs=["train.log"])
    known = jobs(tmp_path, job)
    known.last["1"] = Happened(job="1", what="failed", time=100.0)
    screen = Screen("x", known, holder="", now=120.0, places={})
    assert row(screen.lines(), "failed") == "train  train.log"
    (tmp_path / "train.log").write_text("epoch 1/3 done\none: no disk left\n\n")
    with locked(run / LAUNCH_LOCK, "process 7 on node1"):
        told = row(screen.lines(), "failed")
    assert (
        told
        == "train  train.log  still trains, process 7 on node1; the next start waits for its end"
    )
    assert row(screen.lines(), "failed") == "train  train.log  one: no disk left"
    (tmp_path / "train.log").write_text("a long line " * 1000)
    assert len(screen.lines()[4]) < 200


def test_what_ctrl_c_stopped_has_not_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snakemake counts it as failed: it ended with another status than 0."""

    def stopped(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hadpsgd.status.command.run", stopped)
    assert main(["status", "--config", "c"]) == 130
    said = capsys.readouterr().err
    assert said == "hadpsgd status: stopped; run it again\n"
    known = jobs(tmp_path, *(planned(job, logs=[f"{job}.log"]) for job in "123"))
    (tmp_path / "1.log").write_text(f"2 of 9 utterances\n{said}")
    (tmp_path / "2.log").write_text("one: stopped at step 188; run it again, it resumes\n")
    for job in "12":
        known.last[job] = Happened(job=job, what="failed", time=100.0)
    screen = Screen("x", known, holder="", now=120.0, places={})
    assert screen.summary() == "x: stopped 20 s ago; 0 of 3 jobs done, 3 left"
    assert screen.lines()[3:6] == ["interrupted:", "  1  1.log", "  2  2.log"]
    known.last["3"] = Happened(job="3", what="failed", time=110.0)
    screen = Screen("x", known, holder="", now=120.0, places={})
    assert screen.summary() == "x: failed 10 s ago; 0 of 3 jobs done, 1 failed, 3 left"
    # while the workflow goes on, somebody ended this job alone
    screen = Screen("x", known, holder="process 1", now=120.0, places={})
    assert "3 failed" in screen.summary()


def test_of_a_long_training_the_last_rows_are_read(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    lines = [json.dumps({"step": n, "text": "x" * 100}) + "\n" for n in range(2000)]
    file.write_text("".join(lines) + '{"step": ')
    rows = list(metrics_file.last_rows(file, size=10 * len(lines[-1])))
    assert [row["step"] for row in rows] == list(range(1991, 2000))
    assert len(list(metrics_file.last_rows(file, size=10**6))) == 2000
    assert list(metrics_file.last_rows(tmp_path / "none", size=9)) == []


def test_a_damaged_record_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results" / "few"
    out.mkdir(parents=True)
    (out / FILE).write_text(json.dumps({"rule": "of another version"}) + "\n")
    assert main(["status", "--config", str(config(tmp_path))]) == 2
    assert f"{out / FILE}: damaged" in capsys.readouterr().err


def test_damaged_lines_are_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a disk that was full for a moment leaves them."""
    config(tmp_path)
    known = jobs(tmp_path, planned("1"), planned("2"))
    events = [Happened(job=job, what="finished", time=1.0) for job in "12"]
    rows: list[Any] = [known.start, *known.planned.values(), *events]
    lines = [json.dumps(asdict(row)) for row in rows]
    damaged = [lines[3][:20], "[]", "7", '{"what": "finished"}', '{"job": "1"}', "\udcff"]
    out = tmp_path / "results" / "few"
    out.mkdir(parents=True)
    text = "\n".join([*lines[:3], *damaged, *lines[3:], ""])
    (out / FILE).write_bytes(text.encode(errors="surrogateescape"))
    assert status(tmp_path, capsys)[0] == "few: finished; all 2 jobs done"


def test_without_locks_it_cannot_tell_who_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", none)
    config(tmp_path)
    out = tmp_path / "results" / "few"
    known = jobs(tmp_path, planned("1"), planned("2"))
    begun = [Happened(job=job, what="started", time=1.0) for job in "12"]
    recorded(out, known.start, *known.planned.values(), *begun)
    with locked(out / WORKFLOW_LOCK, "process 1"):
        lines = status(tmp_path, capsys)
    assert lines[0].startswith("few: running or stopped (")
    assert "no locks" in lines[0] and "0 of 2 jobs done" in lines[0]
    assert row(lines, "running or interrupted") == "1"
    recorded(out, known.start, *known.planned.values(),
             *(Happened(job=job, what="finished", time=1.0) for job in "12"))  # fmt: skip
    assert status(tmp_path, capsys)[0] == "few: finished; all 2 jobs done"


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


def test_a_line_that_is_being_written_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "results" / "few"
    out.mkdir(parents=True)
    config(tmp_path)
    known = jobs(tmp_path, planned("1"))
    lines = [json.dumps(asdict(row)) for row in (known.start, known.planned["1"])]
    done = json.dumps(asdict(Happened(job="1", what="finished", time=1.0)))
    (out / FILE).write_text("\n".join([*lines, done[:20]]))
    assert "0 of 1 jobs done, 1 left" in status(tmp_path, capsys)[0]
    (out / FILE).write_text("\n".join([*lines, done, ""]))
    assert status(tmp_path, capsys)[0] == "few: finished; all 1 jobs done"


def test_torch_is_not_loaded() -> None:
    code = "import sys, hadpsgd.status.command; print({'torch', 'snakemake'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_last_line_with_a_time_is_a_logs(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert last_line(log) == ""
    log.write_text("x: 1 of 3 a in 1 s, 9 s left\n" + "x: 2 of 3 a in 5 s, 2 s left\nwarning: b\n")
    assert last_line(log) == "x: 2 of 3 a in 5 s, 2 s left"


def test_a_count_of_one_is_singular_and_little_speech_is_in_seconds() -> None:
    assert [counted(n, "run") for n in range(3)] == ["0 runs", "1 run", "2 runs"]
    assert [of_speech(s) for s in (0.42, 6.4, 59.7, 60, 90)] == [
        *("0.42 s", "6.4 s", "59.7 s", "1.0 min", "1.5 min")
    ]
