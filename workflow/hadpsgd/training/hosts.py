"""A run on all hosts of a Slurm job: `srun` starts on each a process that starts its ranks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from types import FrameType

from hadpsgd.config import shape_of
from hadpsgd.decentralized.network.variables import RESTARTS
from hadpsgd.errors import UserError
from hadpsgd.orphans import end_with_parent
from hadpsgd.training.crew import CRASHED
from hadpsgd.training.end import End
from hadpsgd.training.launched import Launch, elastic, ranks_of_host
from hadpsgd.training.metrics import say
from hadpsgd.training.ranks import FORWARDED
from hadpsgd.training.slurm import SlurmJob
from hadpsgd.training.succession import BAD_INPUT

REQUEUE_SECONDS = 120.0
"""How long a job that goes back into the queue waits for Slurm to end it."""


def run_node(wanted: Launch) -> int:
    """What srun starts on each host: the ranks of this one.

    Stopped at a checkpoint is no failure, at which srun would kill the other hosts' ranks: the
    head hears of it through the store.
    """
    from torch.distributed import TCPStore  # now: after a stop Slurm gives little time

    per_node = shape_of(wanted.config, wanted.run_id).per_node
    first = int(os.environ["SLURM_NODEID"]) * per_node
    code = ranks_of_host(wanted, {}, range(first, first + per_node), []).run()
    if code == End.REQUEUE:
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        TCPStore(address, port, is_master=False).set(stopped_key(), "")
        return End.DONE
    return code


def stopped_key(attempt: int | None = None) -> str:
    """Set in the store where the ranks of an attempt stopped at a checkpoint."""
    number = os.environ[RESTARTS] if attempt is None else attempt
    return f"launch/stopped/{number}"


def srun_command(wanted: Launch, nodes: int) -> list[str]:
    """One process on each host, with all that the job has there.

    A job of super-learners goes back into the queue when it loses a host, which has a large share
    of them; learners by themselves go on without those of the host.
    """
    laid = shape_of(wanted.config, wanted.run_id)
    go_on = elastic(wanted.run, laid.per_node) and wanted.settings.training.lost_learner != "stop"
    return [
        *("srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1"),
        f"--cpus-per-task={laid.per_node * laid.cpus}",
        *([f"--gres={laid.gres}"] if laid.gres else []),
        *("--mem=0", "--overlap", "--mpi=none", "--export=ALL", "--input=none", "--wait=0"),
        f"--kill-on-bad-exit={int(not go_on)}",
        *(["--no-kill"] if go_on and wanted.run.shared_gradients == 1 else []),
        *(sys.executable, "-m", "hadpsgd", "launch", "--node", *wanted.arguments),
        *("--logs", str(wanted.logs), "--restarts", str(wanted.restarts)),
    ]


def hosts_of(wanted: Launch, job: SlurmJob | None) -> int:
    """Over how many hosts the ranks are spread; without Slurm, this one takes all."""
    laid = shape_of(wanted.config, wanted.run_id)
    if job and len(job.hosts) < laid.nodes:
        raise UserError(
            f"run '{wanted.run_id}' wants {laid.nodes} hosts ({wanted.run.learners} learners, "
            f"{laid.per_node} on each), Slurm's job {job.id} has {len(job.hosts)}",
            fix="Ask for more hosts, or set site.learners_per_node",
        )
    return laid.nodes if job else 1


def on_all_hosts(
    wanted: Launch, env: dict[str, str], nodes: int, keep: list[int]
) -> tuple[int, bool]:
    """The largest exit status of all hosts' ranks, and whether a signal asked them to stop."""
    process = subprocess.Popen(
        srun_command(wanted, nodes),
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        pass_fds=keep,
        start_new_session=True,
        preexec_fn=end_with_parent,  # noqa: PLW1509  no lock is taken in it
    )
    stopped = False

    def pass_on(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        nonlocal stopped
        stopped = True
        # srun hands SIGUSR1 on to the step's processes; at SIGTERM it would end them at once
        process.send_signal(signal.SIGUSR1)

    before = {number: signal.signal(number, pass_on) for number in FORWARDED}
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code in (End.DONE, BAD_INPUT) else CRASHED, stopped


def back_into_the_queue(job: SlurmJob) -> None:
    """After a stop at a checkpoint, unless somebody cancelled the job or Slurm requeues it."""
    if job.ends():
        return
    say(f"Slurm job {job.id} goes back into the queue and will go on from its checkpoint")
    # Slurm may lose sight of us once the job's script is gone, and then never kills us
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        if job.requeue() or job.ends():  # the end that it brings may come before its answer
            time.sleep(REQUEUE_SECONDS)
    finally:
        signal.signal(signal.SIGTERM, before)
    say(f"Slurm did not requeue job {job.id} (sbatch --requeue allows it): run it again")


def _leave(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    """At the signal with which Slurm ends a job that it requeues."""
    sys.exit(End.REQUEUE)
