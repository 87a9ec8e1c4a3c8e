"""Start a run's ranks: on this host, or on all hosts of the Slurm job that we are in.

torchrun ends all processes when one dies, and ends itself with status 1 whatever they ended with.
Here a dead rank is started again as a newcomer where the strategy can go on meanwhile, and all of
them from the last checkpoint where it cannot; and 75, run it again, is passed on.

One process, the head, hosts the store at which the ranks meet, so that it outlives every rank; a
rank by itself needs none, and the head then loads no torch. On each host one process starts that
host's ranks; on several hosts `srun` starts one such process on each.
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from hadpsgd.decentralized.network.variables import AGENTS, RESTARTS
from hadpsgd.errors import UserError
from hadpsgd.files import explain_os_errors, write_text
from hadpsgd.locks import locked, myself
from hadpsgd.run_folder import LAUNCH_LOCK
from hadpsgd.tracking import follower
from hadpsgd.tracking.results import FAILED
from hadpsgd.training import divergence, interrupt, slurm
from hadpsgd.training.crew import CRASHED
from hadpsgd.training.end import End
from hadpsgd.training.hosts import back_into_the_queue, hosts_of, on_all_hosts, stopped_key
from hadpsgd.training.identity import checkpoint_folder, done, identity
from hadpsgd.training.launched import Launch, ranks_of_host
from hadpsgd.training.metrics import say
from hadpsgd.training.slurm import SlurmJob
from hadpsgd.training.succession import BAD_INPUT

if TYPE_CHECKING:
    from torch.distributed import TCPStore

    from hadpsgd.training.saved import Saved

FUTILE = 3
"""So many starts of all ranks that get no further are the last."""
NO_STORE = 9
"""The port that a process by itself is told of: it asks nobody (discard, RFC 863)."""


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
    nodes = hosts_of(wanted, job)
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
        if reason := _why_not_before(wanted):
            divergence.note(wanted.out, hash_, 0, f"the run before it diverged: {reason}")
            return _result_of_failure(wanted, hash_, BAD_INPUT, reason)
        code, asked, why = _until_it_ends(wanted, hash_, job, address, nodes, descriptors)
        if code not in (End.DONE, End.REQUEUE) and not asked:
            follower.failed(wanted.config, folder)
            code = _result_of_failure(wanted, hash_, code, why)
    if code == End.REQUEUE and job:
        back_into_the_queue(job)
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
    # in a job's script always by srun: Slurm warns of the time limit those alone
    by_srun = job is not None and (nodes > 1 or not job.in_step)
    # a process by itself meets nobody
    store = _serve(address) if by_srun or wanted.run.processes > 1 else None
    checkpoints = checkpoint_folder(wanted.config, run_id=wanted.run_id, hash_=hash_)
    got_to: list[list[Saved]] = []
    attempts = 1 if wanted.settings.training.lost_learner == "stop" else 1 + wanted.restarts
    for attempt in range(attempts):
        if interrupt.asked():
            return End.REQUEUE, True, ""
        env = {
            "MASTER_ADDR": address,
            "MASTER_PORT": str(store.port if store else NO_STORE),
            AGENTS: "True",
            RESTARTS: str(attempt),
        }
        why = ""
        if by_srun:
            code, stopped = on_all_hosts(wanted, env, nodes, descriptors)
            if code == End.DONE and store and store.check([stopped_key(attempt)]):
                code = End.REQUEUE
        else:
            ranks = ranks_of_host(wanted, env, range(wanted.run.processes), descriptors)
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
        got_to.append(_newest(checkpoints))
        if got_to[-FUTILE:] == got_to[-1:] * FUTILE:
            say(f"{FUTILE} starts ended without a new checkpoint: not again; logs: {wanted.logs}")
            return code, False, why
        if attempt + 1 < attempts:
            say("all ranks start again from the last checkpoint")
    return code, False, why


def _why_not_before(wanted: Launch) -> str:
    """Why the run that this one goes on from has no weights; empty where it has."""
    if not wanted.initial:
        return ""
    from hadpsgd.models.build import why_diverged

    return why_diverged(wanted.initial)


def _newest(checkpoints: Path) -> list[Saved]:
    """The last whole checkpoint, if there is one."""
    from hadpsgd.training.saved import complete

    return complete(checkpoints)[-1:]


def _serve(address: str) -> TCPStore:
    """The store at which the ranks meet, on a free port."""
    import torch.distributed as dist  # a second or two, and 200 MB

    try:
        return dist.TCPStore(address, 0, is_master=True, wait_for_workers=False)
    except (dist.DistError, RuntimeError) as error:
        raise UserError(
            f"no store can be opened here: {str(error).splitlines()[0]}",
            where=address,
            fix="MASTER_ADDR, if you set it, must be an address of this host",
        ) from None
