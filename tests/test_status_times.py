"""`hadpsgd status`: how long jobs will take, and how far they say they are."""

from __future__ import annotations

import itertools
import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
from status_data import config, jobs, planned, recorded, row, status

from hadpsgd.files import WORKFLOW_LOCK
from hadpsgd.locks import locked
from hadpsgd.progress import counted, last_line, of_speech
from hadpsgd.status.estimate import Times, together
from hadpsgd.status.jobs import Happened, Planned, Start
from hadpsgd.status.screen import Screen


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
