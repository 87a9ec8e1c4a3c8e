"""The Slurm job that we run in: its hosts, its state, its way back into the queue.

Of Slurm's variables only SLURM_JOB_ID and SLURMD_NODENAME are sure to be there (the executor's
job step removes the others), so the controller is asked for what is missing.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass

from hadpsgd.errors import UserError

ASKED_TIMES = 5
ASK_AGAIN_SECONDS = 1.0


@dataclass(frozen=True)
class SlurmJob:
    """A job; `hosts` in Slurm's order."""

    id: str
    hosts: tuple[str, ...]
    address: str
    """Of the host that we are on, as Slurm knows it."""
    in_step: bool = False
    """Whether srun started us (an interactive shell, say), not the job's script."""

    def state(self) -> str:
        """RUNNING, COMPLETING, CANCELLED, ...; empty if Slurm does not say."""
        return _ask("squeue", "-h", "-j", self.id, "-o", "%T")

    def ends(self) -> bool:
        """Whether Slurm is ending it: cancelled, preempted, out of time. Silence counts as yes.

        A signal to the whole job may kill squeue, too, so it is asked again.
        """
        for _ in range(ASKED_TIMES):
            state = self.state()
            if state:
                return state != "RUNNING"
            time.sleep(ASK_AGAIN_SECONDS)
        return True

    def lost_hosts(self) -> bool:
        """Whether hosts died and the job goes on without them (sbatch --no-kill)."""
        now = _ask("squeue", "-h", "-j", self.id, "-o", "%D")
        return now.isdecimal() and int(now) < len(self.hosts)

    def requeue(self) -> bool:
        """Put the job back into the queue, which ends it here; False if Slurm refuses."""
        done = subprocess.run(
            ["scontrol", "requeue", self.id], capture_output=True, text=True, check=False
        )
        return done.returncode == 0


def current(env: Mapping[str, str] = os.environ) -> SlurmJob | None:
    """The job that this process is part of, or None.

    Raises:
        UserError: Slurm does not know the job.
    """
    job = env.get("SLURM_JOB_ID", "")
    if not job:
        return None
    names = env.get("SLURM_JOB_NODELIST") or _ask("squeue", "-h", "-j", job, "-o", "%N")
    hosts = tuple(_ask("scontrol", "show", "hostnames", names).split()) if names else ()
    if not hosts:
        raise UserError(
            f"Slurm does not tell the hosts of job {job}",
            fix="Are squeue and scontrol in PATH? Outside of a job, unset SLURM_JOB_ID",
        )
    address = _address(env.get("SLURMD_NODENAME", hosts[0]))
    return SlurmJob(job, hosts, address, "SLURM_STEP_ID" in env)


def check_partition(hosts: int, *, partition: str, run: str) -> None:
    """Refuse a run for which no partition is large enough, where Slurm would let it wait for ever.

    `partition` is what sbatch gets, a list with commas perhaps; empty for Slurm's default. Nothing
    is refused that Slurm does not know: sbatch says so itself.

    Raises:
        UserError: too few hosts.
    """
    sizes = {}
    for line in _ask("scontrol", "show", "partition", "-o").splitlines():
        told = dict(word.split("=", 1) for word in line.split() if "=" in word)
        name = told.get("PartitionName", "")
        if name in partition.split(",") or (not partition and told.get("Default") == "YES"):
            limits = (told.get("TotalNodes", ""), told.get("MaxNodes", ""))
            sizes[name] = min((int(limit) for limit in limits if limit.isdecimal()), default=hosts)
    if sizes and max(sizes.values()) < hosts:
        most = ", ".join(f"partition '{name}' gives {size}" for name, size in sizes.items())
        raise UserError(
            f"run '{run}' wants {hosts} hosts, {most} at most",
            fix="Set site.learners_per_node, or train's slurm_partition in the profile",
        )


def _address(host: str) -> str:
    """NodeAddr of a host, by which Slurm itself reaches it; its name if Slurm does not say."""
    found = re.search(r"\bNodeAddr=(\S+)", _ask("scontrol", "show", "node", host, "-o"))
    return found[1] if found else host


def _ask(*command: str) -> str:
    """Output of one of Slurm's commands; empty if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
