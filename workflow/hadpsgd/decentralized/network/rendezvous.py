"""How the processes of a run find each other: torchrun's or Slurm's environment, one store."""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from hadpsgd.decentralized.core.place import Place
from hadpsgd.decentralized.network import job_store, sockets
from hadpsgd.decentralized.network.connections import Address
from hadpsgd.decentralized.network.sockets import Names
from hadpsgd.decentralized.network.variables import AGENTS, JOIN, RESTARTS, RETURN
from hadpsgd.errors import UserError

LONGEST_WAIT = 1e6
"""Seconds; torch counts milliseconds in 32 bits."""
FIRST_PORT, PORTS, STEPS_OF_A_JOB = 12000, 20000, 16
"""Below those that the system gives to anybody."""
LAST_PORT = 65535


@dataclass(frozen=True, kw_only=True)
class Meeting:
    """The processes have met and agree on what they run."""

    place: Place
    local_world: int
    """Ranks on this host."""
    host: str
    """The address at which the other hosts reach this one."""
    store: dist.Store | None
    """Shared by all ranks; None for a single one."""
    timeout: timedelta
    life: int = 0
    """How many processes had this rank before (HADPSGD_JOIN): over 0, it takes a dead one's place.
    The ranks of a super-learner are started, and counted, together."""
    returning: bool = False
    """Whether the first member of its super-learner lives, and has the weights."""
    alone: bool = False
    """Whether this process takes the place of a first member that died; others come to it."""
    hosts_store: bool = False
    """Whether the store ends with this process."""

    @property
    def joining(self) -> bool:
        """Whether this process takes the place of one that died."""
        return self.life > 0

    def prefixed(self, name: str) -> dist.Store:
        """A part of the store with names of its own."""
        if self.store is None:
            raise ValueError("a single process has no store")
        return dist.PrefixStore(name, self.store)

    def publish(self, name: str) -> Callable[[Address], None]:
        """Makes this rank's address known under `name`."""
        store = self.prefixed(name)
        return lambda address: store.set(str(self.place.rank), json.dumps(address))

    def apart(self, ranks: Iterable[int]) -> bool:
        """Whether these ranks are on several hosts; each of them asks."""
        store = self.prefixed("hosts")
        store.set(str(self.place.rank), self.host)
        return len(set(store.multi_get([str(rank) for rank in ranks]))) > 1

    def wait_for_all(self, name: str) -> None:
        """Until all ranks have published under `name` (a newcomer need not wait).

        Raises:
            UserError: names the ranks that have not.
        """
        if not self.joining:
            missing = self._missing(name, range(self.place.world))
            if missing:
                raise UserError(f"rank {', '.join(missing)} came and then fell silent")

    def wait_for_finish(self, ranks: Iterable[int]) -> None:
        """Until these ranks, of which this one is one, have come to their end.

        Raises:
            UserError: names the ranks that have not.
        """
        self.prefixed("finishing").set(str(self.place.rank), "")
        missing = self._missing("finishing", ranks)
        if missing:
            seconds = self.timeout.total_seconds()
            raise UserError(
                f"rank {', '.join(missing)} did not come to finish() within {seconds:g} s",
                fix="All ranks call it; with a synchronous strategy after equally many steps",
            )

    def _missing(self, name: str, ranks: Iterable[int]) -> list[str]:
        """Ranks that have not published under `name` when time is up."""
        store, keys = self.prefixed(name), [str(rank) for rank in ranks]
        try:
            store.wait(keys, self.timeout)
        except dist.DistStoreError:
            return [rank for rank in keys if not store.check([rank])]
        return []

    def lookup(self, name: str) -> Callable[[int], Address | None]:
        """Finds a rank's address; None as long as it is not known."""
        store = self.prefixed(name)

        def find(rank: int) -> Address | None:
            if not store.check([str(rank)]):
                return None
            host, port = json.loads(store.get(str(rank)))
            return host, port

        return find


def environment(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT from torchrun or Slurm's srun.

    Raises:
        UserError: some of them are there, others not, or one is no number.
    """
    tasks = env.get("SLURM_NTASKS", "1")
    if "RANK" not in env and "SLURM_PROCID" in env and tasks.isdecimal() and int(tasks) > 1:
        env = {
            "RANK": env["SLURM_PROCID"],
            "WORLD_SIZE": env["SLURM_NTASKS"],
            "LOCAL_WORLD_SIZE": env.get("SLURM_NTASKS_PER_NODE", "1"),
            **_meeting_point(env),
        } | dict(env)
    wanted = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    if "RANK" not in env and env.get("WORLD_SIZE", "1") == "1":
        return {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    missing = [name for name in wanted if name not in env]
    if missing:
        raise UserError(
            f"{_set_of(wanted, env)}, but {', '.join(missing)} is not set",
            where="environment",
            fix="Start learners with torchrun, or set it (on all hosts alike)",
        )
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_PORT", JOIN):
        if not env.get(name, "1").isdecimal():
            raise UserError(f"{name}={env[name]} is not a number", where="environment")
    rank, world, port = (int(env[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    if rank >= world:
        what = f"RANK={rank} of WORLD_SIZE={world}: ranks go from 0 to WORLD_SIZE - 1"
        raise UserError(what, where="environment")
    if not 0 < port <= LAST_PORT:
        what = f"MASTER_PORT={port} is no port: there are 1 to {LAST_PORT}"
        raise UserError(what, where="environment")
    others = ("LOCAL_WORLD_SIZE", RESTARTS, AGENTS, JOIN, RETURN)
    return {name: env[name] for name in (*wanted, *others) if name in env}


def _set_of(wanted: Iterable[str], env: Mapping[str, str]) -> str:
    return " and ".join(f"{name}={env[name]}" for name in wanted if name in env)


def _meeting_point(env: Mapping[str, str]) -> dict[str, str]:
    """Where the tasks of a Slurm step meet, unless somebody said so: its first host, and a port.

    The port follows from job and step, so that steps beside each other have their own.
    """
    hosts = env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST", "")
    first = re.match(r"([^\[,]+)(?:\[(\d+)[^\]]*\]([^\[,]*))?", hosts)  # gpu[07-09,12]-ib,other
    job, step = env.get("SLURM_JOB_ID", ""), env.get("SLURM_STEP_ID", "0")
    if not first or not job.isdecimal() or not step.isdecimal():
        return {}
    port = FIRST_PORT + (int(job) * STEPS_OF_A_JOB + int(step)) % PORTS
    return {"MASTER_ADDR": "".join(part or "" for part in first.groups()), "MASTER_PORT": str(port)}


def meet(
    *, learners: int, size: int, agree_on: str, seconds: float = 300.0, before: int = 0
) -> Meeting:
    """Wait for all ranks; check that they run the same thing.

    Args:
        learners: processes that the run needs.
        size: learners of a super-learner.
        agree_on: hash that must be the same everywhere.
        seconds: how long to wait for the others.
        before: how often these processes have met before, for something else.

    Raises:
        UserError: wrong number of processes, a rank that never came, different hashes.
    """
    if not 0 < seconds <= LONGEST_WAIT:
        raise UserError(f"seconds to wait are above 0 and up to {LONGEST_WAIT:g}, not {seconds:g}")
    env = environment()
    rank, world = int(env["RANK"]), int(env["WORLD_SIZE"])
    if world != learners:
        raise UserError(
            f"the run has {learners} learners, but {world} processes were started",
            fix=f"Start it with `torchrun --standalone --nproc-per-node {learners} -m hadpsgd ...`",
        )
    place = Place(rank=rank, world=world, size=size)
    timeout = timedelta(seconds=seconds)
    if world == 1:
        return Meeting(place=place, local_world=1, host="127.0.0.1", store=None, timeout=timeout)
    store = job_store.of_job(env, rank, timeout)
    shared = of_attempt(store, env.get(RESTARTS, "0"))
    if before:  # what was written then is not read as if it were said now
        shared = dist.PrefixStore(f"again/{before}", shared)
    life = int(env.get(JOIN, "0"))
    if life:
        _check_hash(shared, rank, agree_on)
    else:
        _greet(shared, rank, world, agree_on, seconds)
    return Meeting(
        place=place,
        local_world=int(env.get("LOCAL_WORLD_SIZE", "1")),
        host=own_address(env["MASTER_ADDR"]),
        store=shared,
        timeout=timeout,
        life=life,
        returning=bool(life) and RETURN in env,
        hosts_store=rank == 0 and not job_store.is_agents(env),
    )


def process_group(
    name: str, meeting: Meeting, *, rank: int, size: int, by_host: bool = False
) -> Collection[tuple[int, Names]]:
    """Make torch's default group of this process, under a name of its own in the store.

    `by_host`: without NCCL, also where there are GPUs: they are not used, or learners share one.
    Returns its connections (gloo's).
    """
    before = sockets.found()
    nccl = not by_host and torch.cuda.is_available()
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if nccl else "gloo",
        store=meeting.prefixed(name),
        rank=rank,
        world_size=size,
        timeout=meeting.timeout,
    )
    keep(dist.group.WORLD)
    return sockets.new_since(before)


_KEPT: list[dist.ProcessGroup | None] = []


def keep(group: dist.ProcessGroup | None) -> dist.ProcessGroup | None:
    """Let nobody free a group before the process ends; returns it.

    Freeing one waits for its threads and holds Python's lock meanwhile (torch 2.13, gloo). A thread
    that is just letting go of a tensor waits for that lock: now and then a process hung for ever
    after its last step.
    """
    _KEPT.append(group)
    return group


def of_attempt(store: dist.Store, attempt: str) -> dist.Store:
    """The part of the store that the processes of one start of all learners share."""
    return dist.PrefixStore(f"hadpsgd/{attempt}", store)


def own_address(other: str) -> str:
    """The address of the interface that reaches the host `other`."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((other, 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def _check_hash(store: dist.Store, rank: int, agree_on: str) -> None:
    """A newcomer runs what its former self ran, or UserError."""
    before = store.get(f"hello/{rank}").decode()
    if before != agree_on:
        raise UserError(
            f"rank {rank} runs another config or model than before ({agree_on} and {before})"
        )


def _greet(store: dist.Store, rank: int, world: int, agree_on: str, seconds: float) -> None:
    """All ranks have come and agree, or UserError. Nobody takes the place of one who is there."""
    mine = secrets.token_hex(8)
    if store.compare_set(f"here/{rank}", "", mine).decode() != mine:
        raise UserError(
            f"another process is rank {rank} here already, perhaps of another training",
            fix="Give each training a MASTER_PORT of its own",
        )
    store.set(f"hello/{rank}", agree_on)
    deadline = time.monotonic() + seconds
    waiting = list(range(world))
    while waiting and time.monotonic() < deadline:
        waiting = [r for r in waiting if not store.check([f"hello/{r}"])]
        if waiting:
            time.sleep(0.02)
    hashes = {r: store.get(f"hello/{r}").decode() for r in range(world) if r not in waiting}
    store.set(f"greeted/{rank}", "")
    others = [r for r, hash_ in hashes.items() if hash_ != hashes.get(0, hash_)]
    if rank == 0 and (waiting or others):
        # the store may die with this process: let the others see what is wrong first
        wait_for_keys(store, [f"greeted/{r}" for r in hashes], 2.0)
    if waiting:
        raise UserError(
            f"rank {', '.join(map(str, waiting))} did not come within {seconds:g} s",
            fix="See its log; a longer wait is site.rendezvous_seconds",
        )
    if others:
        raise UserError(
            f"rank {', '.join(map(str, others))} runs another config or model than rank 0 "
            f"({hashes[others[0]]} and {hashes[0]})",
            fix="Start all ranks with the same config, code and examples",
        )


def wait_for_keys(store: dist.Store, keys: Sequence[str], seconds: float) -> bool:
    """Whether all keys are there before time is up."""
    deadline = time.monotonic() + seconds
    while not all(store.check([key]) for key in keys):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
