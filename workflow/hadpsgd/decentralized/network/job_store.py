"""The one TCPStore that all processes of a job share.

Under torchrun it is the agent's (TORCHELASTIC_USE_AGENT_STORE): a second store at the same port
would wait for ever for a server that is taken already.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta

import torch.distributed as dist

from hadpsgd.decentralized.network.variables import AGENTS
from hadpsgd.errors import UserError


def is_agents(env: Mapping[str, str]) -> bool:
    """Whether the launcher has the store, and not rank 0."""
    return env.get(AGENTS) == "True"


@contextmanager
def store_there() -> Iterator[None]:
    """What is done with the store that all learners share: it ends with the process that has it.

    Raises:
        UserError: it has ended.
    """
    try:
        yield
    except dist.DistNetworkError as error:
        raise UserError(
            "the process that has the store of all learners is gone (rank 0, or the launcher)",
            fix="See its log, and start all of them anew",
        ) from error


_STORES: dict[tuple[int, str, int], dist.TCPStore] = {}
"""Of this process (a fork has its own), by host and port: rank 0 can listen at a port but once."""


def of_job(env: Mapping[str, str], rank: int, timeout: timedelta) -> dist.Store:
    """The store of all processes; this one's connection, which is opened once.

    Raises:
        UserError: it cannot be reached.
    """
    key = os.getpid(), env["MASTER_ADDR"], int(env["MASTER_PORT"])
    if key not in _STORES:
        _STORES[key] = _new_store(env, rank, timeout)
    _STORES[key].set_timeout(timeout)
    return _STORES[key]


def _new_store(env: Mapping[str, str], rank: int, timeout: timedelta) -> dist.TCPStore:
    host, port = env["MASTER_ADDR"], int(env["MASTER_PORT"])
    is_master = rank == 0 and not is_agents(env)
    try:
        if not is_master:  # torch prints its own stack where nobody answers
            _knock(host, port, timeout.total_seconds())
        return dist.TCPStore(
            host, port, is_master=is_master, timeout=timeout, wait_for_workers=False
        )
    except (dist.DistError, RuntimeError, OSError) as error:
        if is_master and "address already in use" in str(error):
            raise UserError(
                "another process listens at this port, perhaps another training's rank 0",
                where=f"{host}:{port}",
                fix="Give this one another MASTER_PORT",
            ) from None
        raise UserError(
            f"rank {rank} cannot reach the store: {str(error).splitlines()[0].rstrip('.')}",
            where=f"{host}:{port}",
            fix="Is rank 0 running, and the port open?",
        ) from None


def _knock(host: str, port: int, seconds: float) -> None:
    """Until something listens there; raises OSError when time is up."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((host, port), timeout=max(seconds, 1.0)).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no answer within {seconds:g} s ({error})") from None
            time.sleep(0.1)
