"""Launching inside a Slurm job: hosts, srun, the way back into the queue."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from training_data import launch_of

from hadpsgd.errors import UserError
from hadpsgd.tracking.spool import LAST_WORD
from hadpsgd.tracking.uri import spool_folder
from hadpsgd.training import hosts
from hadpsgd.training import launch as launching
from hadpsgd.training import slurm as slurm_job
from hadpsgd.training.hosts import srun_command
from hadpsgd.training.ranks import Ranks


@pytest.mark.parametrize(
    ("stopped", "state", "starts"),
    [(False, "RUNNING", 3), (False, "", 1), (True, "RUNNING", 1), (False, "COMPLETING", 1)],
)
def test_what_slurm_ends_is_not_started_again(
    stopped: bool, state: str, starts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = launch_of(tmp_path, {"strategy": "adpsgd", "learners": 4})
    wanted = replace(wanted, restarts=2)
    job = slurm_job.SlurmJob("7", ("a", "b"), "127.0.0.1")
    monkeypatch.setattr(launching.slurm, "current", lambda: job)
    monkeypatch.setattr(slurm_job.SlurmJob, "state", lambda _: state)
    monkeypatch.setattr(slurm_job, "ASK_AGAIN_SECONDS", 0)
    attempts = []

    def crashes(*_: Any) -> tuple[int, bool]:
        attempts.append(1)
        return 1, stopped

    monkeypatch.setattr(launching, "on_all_hosts", crashes)
    assert launching.launch(wanted) == 1
    assert len(attempts) == starts
    [last_word] = spool_folder(wanted.config).glob(f"*/{LAST_WORD}")
    assert ("FAILED" if starts > 1 else "KILLED") in last_word.read_text()


@pytest.mark.parametrize(("in_step", "by_srun"), [(False, True), (True, False)])
def test_one_host_of_a_job(
    in_step: bool, by_srun: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By srun from the job's script, directly from a shell that srun started."""
    wanted = launch_of(tmp_path, {"strategy": "single"})
    job = slurm_job.SlurmJob("7", ("a",), "127.0.0.1", in_step)
    monkeypatch.setattr(launching.slurm, "current", lambda: job)
    used: list[bool] = []

    def remember(srun: bool) -> Any:
        used.append(srun)
        return (0, False) if srun else 0

    monkeypatch.setattr(launching, "on_all_hosts", lambda *_: remember(True))
    monkeypatch.setattr(Ranks, "run", lambda _: remember(False))
    assert launching.launch(wanted) == 0
    assert used == [by_srun]


@pytest.mark.parametrize(
    ("states", "requeued", "waits"),
    [
        (["RUNNING"], True, True),
        (["RUNNING", "COMPLETING"], False, True),  # the end came before scontrol's answer
        (["RUNNING", "RUNNING"], False, False),  # --no-requeue
        (["COMPLETING"], True, False),  # cancelled
    ],
)
def test_back_into_the_queue(
    states: list[str], requeued: bool, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = iter(states)
    slept: list[float] = []
    monkeypatch.setattr(slurm_job.SlurmJob, "state", lambda _: next(told))
    monkeypatch.setattr(slurm_job.SlurmJob, "requeue", lambda _: requeued)
    monkeypatch.setattr(hosts.time, "sleep", slept.append)
    hosts.back_into_the_queue(slurm_job.SlurmJob("7", ("a",), "127.0.0.1"))
    assert bool(slept) == waits


def test_the_end_that_a_requeue_brings_is_waited_for_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(slurm_job.SlurmJob, "state", lambda _: "RUNNING")
    monkeypatch.setattr(slurm_job.SlurmJob, "requeue", lambda _: True)
    monkeypatch.setattr(hosts.time, "sleep", lambda _: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit) as end:
        hosts.back_into_the_queue(slurm_job.SlurmJob("7", ("a",), "127.0.0.1"))
    assert end.value.code == 75
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    ("run", "lost", "stays"),
    [
        ({"strategy": "adpsgd"}, "replace", True),
        ({"strategy": "adpsgd"}, "stop", False),
        ({"strategy": "ssgd"}, "replace", False),
    ],
)
def test_srun_goes_on_without_a_host_where_the_strategy_can(
    run: dict[str, object], lost: str, stays: bool, tmp_path: Path
) -> None:
    wanted = launch_of(tmp_path, run | {"learners": 4}, lost_learner=lost)
    command = srun_command(wanted, 2)
    assert ("--no-kill" in command) == stays
    assert f"--kill-on-bad-exit={int(not stays)}" in command
    assert {"--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--cpus-per-task=2"} <= set(command)


@pytest.mark.parametrize(
    ("size", "among", "heals"), [(2, "adpsgd", True), (2, "dpsgd", False), (4, "adpsgd", False)]
)
def test_srun_lets_super_learners_of_one_host_heal(
    size: int, among: str, heals: bool, tmp_path: Path
) -> None:
    """They are replaced on their host, 2 learners here; a host that is lost ends the step."""
    run = {"strategy": "hadpsgd", "learners": 8, "super_learner": size, "among": among}
    command = srun_command(launch_of(tmp_path, run), 4)
    assert f"--kill-on-bad-exit={int(not heals)}" in command
    assert "--no-kill" not in command


def test_too_few_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = launch_of(tmp_path, {"strategy": "adpsgd", "learners": 4})
    job = slurm_job.SlurmJob("7", ("a",), "127.0.0.1")
    monkeypatch.setattr(launching.slurm, "current", lambda: job)
    with pytest.raises(UserError, match=r"wants 2 hosts \(4 learners, 2 on each\).*has 1"):
        launching.launch(wanted)


def test_a_job_that_slurm_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match="hosts of job 12"):
        slurm_job.current({"SLURM_JOB_ID": "12"})
    assert slurm_job.current({}) is None


PARTITIONS = """
PartitionName=small AllowGroups=ALL Default=NO MaxNodes=2 TotalNodes=8 State=UP
PartitionName=large AllowGroups=ALL Default=YES MaxNodes=UNLIMITED TotalNodes=4 State=UP
"""


@pytest.mark.parametrize(
    ("partition", "hosts", "gives"),
    [
        ("small", 2, ""),
        ("small", 3, "partition 'small' gives 2 at most"),
        ("", 4, ""),
        ("", 5, "partition 'large' gives 4 at most"),
        ("small,large", 4, ""),
        ("small,large", 5, "partition 'small' gives 2, partition 'large' gives 4 at most"),
        ("unknown", 5, ""),
    ],
)
def test_a_run_too_large_for_the_partition(
    partition: str, hosts: int, gives: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_job, "_ask", lambda *_: PARTITIONS.strip())
    refused = pytest.raises(UserError, match=f"run 'r' wants {hosts} hosts, {gives}")
    with refused if gives else contextlib.nullcontext():
        slurm_job.check_partition(hosts, partition=partition, run="r")
