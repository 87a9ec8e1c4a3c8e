"""Start a run's ranks: on this host, or on all hosts of the Slurm job that we are in.

torchrun ends all processes when one dies, and ends itself with status 1 whatever they ended with.
Here a dead rank is started again as a newcomer where the strategy can go on meanwhile, and all of
them from the last checkpoint where it cannot; and 75, run it again, is passed on.

One process, the head, hosts the store at which the ranks meet, so that it outlives every rank. On
each host one process starts that host's ranks; on several hosts `srun` starts one such process on
each.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import torch.distributed as dist

from hadpsgd.config import Config, RunSettings, settings_of, shape_of
from hadpsgd.config.training import Run
from hadpsgd.decentralized.network import rendezvous
from hadpsgd.decentralized.strategies.registry import find
from hadpsgd.errors import UserError
from hadpsgd.files import explain_os_errors, write_text
from hadpsgd.locks import locked, myself
from hadpsgd.models.build import why_diverged
from hadpsgd.run_folder import LAUNCH_LOCK
from hadpsgd.tracking import follower
from hadpsgd.tracking.results import FAILED
from hadpsgd.training import divergence, interrupt, slurm
from hadpsgd.training.command import done
from hadpsgd.training.crew import CRASHED
from hadpsgd.training.job import checkpoint_folder, identity
from hadpsgd.training.loop import End
from hadpsgd.training.metrics import say
from hadpsgd.training.rank import end_with_parent
from hadpsgd.training.ranks import FORWARDED, Ranks
from hadpsgd.training.saved import Saved, complete
from hadpsgd.training.slurm import SlurmJob
from hadpsgd.training.succession import BAD_INPUT

FUTILE = 3
"""So many starts of all ranks that get no further are the last."""
REQUEUE_SECONDS = 120.0
"""How long a job that goes back into the queue waits for Slurm to end it."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A run to be started."""

    config_file: Path
    config: Config
    run_id: str
    egs: Path
    dev_egs: Path
    out: Path
    logs: Path
    initial: Path | None = None
    """The model that a stage goes on from."""
    restarts: int = 10
    """How many ranks that die are started again, on each host, and how often all are."""
    wait: bool = False
    """Wait where another launch trains this run, as long as it takes."""
    accept_divergence: bool = False
    """Take it for a result that the run diverges: summary.json says so, and the status is 0."""

    @property
    def settings(self) -> RunSettings:
        """What it is trained with."""
        return settings_of(self.config, self.run_id)

    @property
    def run(self) -> Run:
        """How its learners work together."""
        return self.settings.run

    @property
    def arguments(self) -> list[str]:
        """Of `hadpsgd train`."""
        return [
            *("--config", str(self.config_file), "--run-id", self.run_id, "--egs", str(self.egs)),
            *("--dev-egs", str(self.dev_egs), "--out", str(self.out)),
            *(("--initial", str(self.initial)) if self.initial else ()),
        ]


def elastic(run: Run, per_host: int) -> bool:
    """Whether the others can go on when a rank dies."""
    return not needs_all(run, per_host)


def needs_all(run: Run, per_host: int) -> str:
    """Why the others cannot go on when a rank dies; empty if they can.

    A super-learner must be on one host, whose launcher ends and starts its ranks together.
    """
    what, size = run.strategy, run.shared_gradients
    if run.learners == 1:
        return "there is no other"
    if run.simulated:
        return "one process trains all learners"
    if what == "ddp" or size == run.learners:
        return f"every step of {what} averages the gradients of all learners"
    if find(what, among=run.among).synchronous:
        return f"{run.among if what == 'hadpsgd' else what} waits for others in every round"
    if per_host % size:
        return "a super-learner that spans hosts is not replaced alone"
    return ""


def admits(run: Run) -> bool:
    """Whether a newcomer can join those that go on."""
    return run.schedule != "random-partner"


def launch(wanted: Launch) -> int:
    """Run to the end, or until a signal; 0 done, 75 to be run again, anything else failed.

    Raises:
        UserError: too few hosts, no examples, no permission to write; another launch of the run.
    """
    hash_ = identity(wanted.config, wanted.run_id, wanted.egs, initial=wanted.initial)
    folder = checkpoint_folder(wanted.config, run_id=wanted.run_id, hash_=hash_)
    for path in (folder, wanted.out, wanted.logs):
        with explain_os_errors(path):
            path.mkdir(parents=True, exist_ok=True)
    job = slurm.current()
    nodes = _hosts(wanted, job)
    who = myself(job.id if job else "")
    with ExitStack() as locks:
        # the folder of the checkpoints: one run; that of the results: whatever is written there
        held = [
            locks.enter_context(locked(path / LAUNCH_LOCK, who, wait=wanted.wait))
            for path in (folder, wanted.out)
        ]
        if done(wanted.out, hash_, diverged=wanted.accept_divergence):
            say(f"{wanted.out}: trained already, of the same config and examples: nothing to do")
            return End.DONE
        divergence.forget(wanted.out)
        (wanted.out / FAILED).unlink(missing_ok=True)
        follower.announce(wanted.config, wanted.run_id, checkpoints=folder, out=wanted.out)
        descriptors = [lock for lock in held if lock is not None]
        address = os.environ.get("MASTER_ADDR") or (job.address if job else "127.0.0.1")
        if wanted.initial and (reason := why_diverged(wanted.initial)):
            divergence.note(wanted.out, hash_, 0, f"the run before it diverged: {reason}")
            return _result_of_failure(wanted, hash_, BAD_INPUT, reason)
        code, asked, why = _until_it_ends(wanted, hash_, job, address, nodes, descriptors)
        if code not in (End.DONE, End.REQUEUE) and not asked:
            follower.failed(wanted.config, folder)
            code = _result_of_failure(wanted, hash_, code, why)
    if code == End.REQUEUE and job:
        _back_into_the_queue(job)
    return code


def _result_of_failure(wanted: Launch, hash_: str, code: int, why: str) -> int:
    """Leave in the run's folder how it ended; the exit status."""
    found = divergence.noted(wanted.out, hash_)
    if code == BAD_INPUT and found and wanted.accept_divergence:
        divergence.keep(wanted.out, wanted.settings, found)
        say(f"{wanted.run_id} diverged: that is its result")
        return End.DONE
    why = found.get("why") or why or f"its ranks ended with status {code}; logs: {wanted.logs}"
    write_text(wanted.out / FAILED, json.dumps({"why": why, "status": code}) + "\n")
    return code


def run_node(wanted: Launch) -> int:
    """What srun starts on each host: the ranks of this one.

    Stopped at a checkpoint is no failure, at which srun would kill the other hosts' ranks: the
    head hears of it through the store.
    """
    per_node = shape_of(wanted.config, wanted.run_id).per_node
    first = int(os.environ["SLURM_NODEID"]) * per_node
    code = _ranks(wanted, {}, range(first, first + per_node), []).run()
    if code == End.REQUEUE:
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        dist.TCPStore(address, port, is_master=False).set(_stopped_key(), "")
        return End.DONE
    return code


def _stopped_key(attempt: int | None = None) -> str:
    """Set in the store where the ranks of an attempt stopped at a checkpoint."""
    number = os.environ[rendezvous.RESTARTS] if attempt is None else attempt
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


def _hosts(wanted: Launch, job: SlurmJob | None) -> int:
    """Over how many hosts the ranks are spread; without Slurm, this one takes all."""
    laid = shape_of(wanted.config, wanted.run_id)
    if job and len(job.hosts) < laid.nodes:
        raise UserError(
            f"run '{wanted.run_id}' wants {laid.nodes} hosts ({wanted.run.learners} learners, "
            f"{laid.per_node} on each), Slurm's job {job.id} has {len(job.hosts)}",
            fix="Ask for more hosts, or set site.learners_per_node",
        )
    return laid.nodes if job else 1


def _until_it_ends(
    wanted: Launch,
    hash_: str,
    job: SlurmJob | None,
    address: str,
    nodes: int,
    descriptors: list[int],
) -> tuple[int, bool, str]:
    """Start all; where a death ended all, start all again from the last checkpoint.

    Exit status, whether somebody asked for the end (a signal, Slurm), and why it failed, where
    that is known here.
    """
    store = _serve(address)
    checkpoints = checkpoint_folder(wanted.config, run_id=wanted.run_id, hash_=hash_)
    got_to: list[list[Saved]] = []
    attempts = 1 if wanted.settings.training.lost_learner == "stop" else 1 + wanted.restarts
    for attempt in range(attempts):
        if interrupt.asked():
            return End.REQUEUE, True, ""
        env = {
            "MASTER_ADDR": address,
            "MASTER_PORT": str(store.port),
            rendezvous.AGENTS_STORE: "True",
            rendezvous.RESTARTS: str(attempt),
        }
        why = ""
        # in a job's script always by srun: Slurm warns of the time limit those alone
        if job and (nodes > 1 or not job.in_step):
            code, stopped = _on_all_hosts(wanted, env, nodes, descriptors)
            if code == End.DONE and store.check([_stopped_key(attempt)]):
                code = End.REQUEUE
        else:
            ranks = _ranks(wanted, env, range(wanted.run.processes), descriptors)
            code, why = ranks.run(), ranks.reason
            stopped = ranks.stopping and not ranks.refused
        if code not in (End.DONE, BAD_INPUT) and done(wanted.out, hash_):
            say("some ranks were lost; the others finished the run")
            return End.DONE, False, ""
        if code != CRASHED or stopped:
            return code, stopped, why
        if job and job.ends():
            return code, True, why
        if job and job.lost_hosts():
            say(f"Slurm job {job.id} lost a host; the learners cannot go on without it")
            return End.REQUEUE, False, ""
        got_to.append(complete(checkpoints)[-1:])
        if got_to[-FUTILE:] == got_to[-1:] * FUTILE:
            say(f"{FUTILE} starts ended without a new checkpoint: not again; logs: {wanted.logs}")
            return code, False, why
        if attempt + 1 < attempts:
            say("all ranks start again from the last checkpoint")
    return code, False, why


def _serve(address: str) -> dist.TCPStore:
    """The store at which the ranks meet, on a free port."""
    try:
        return dist.TCPStore(address, 0, is_master=True, wait_for_workers=False)
    except (dist.DistError, RuntimeError) as error:
        raise UserError(
            f"no store can be opened here: {str(error).splitlines()[0]}",
            where=address,
            fix="MASTER_ADDR, if you set it, must be an address of this host",
        ) from None


def _ranks(wanted: Launch, env: dict[str, str], numbers: range, descriptors: list[int]) -> Ranks:
    """The ranks that this host runs."""
    can, wants = elastic(wanted.run, len(numbers)), wanted.settings.training.lost_learner
    lost = wants if can else "stop"
    return Ranks(
        [sys.executable, "-m", "hadpsgd", "train", *wanted.arguments],
        env,
        numbers,
        wanted.run.processes,
        wanted.logs,
        replacements=wanted.restarts if lost == "replace" and admits(wanted.run) else 0,
        alone=lost != "stop",
        size=wanted.run.shared_gradients if can else 1,
        reduces=can and wanted.settings.training.member_death != "leave",
        waits=wanted.settings.training.member_death == "wait",
        needs_all=needs_all(wanted.run, len(numbers)),
        descriptors=descriptors,
        silence=wanted.settings.training.silence_limit,
    )


def _on_all_hosts(
    wanted: Launch, env: dict[str, str], nodes: int, keep: list[int]
) -> tuple[int, bool]:
    """The largest exit status of all hosts' ranks, and whether a signal asked them to stop."""
    process = subprocess.Popen(
        srun_command(wanted, nodes),
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        pass_fds=keep,
        start_new_session=True,
        preexec_fn=end_with_parent(),  # noqa: PLW1509  no lock is taken in it
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


def _back_into_the_queue(job: SlurmJob) -> None:
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
