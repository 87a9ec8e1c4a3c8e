"""Run a function in many forked processes, as torchrun would start it, and collect the results.

Forking after torch is imported takes milliseconds; a spawned process would import it for seconds.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

torch.set_num_threads(1)


@dataclass
class Outcome:
    """How a process ended."""

    value: Any = None
    error: str = ""
    code: int | None = None


def free_port() -> int:
    """A TCP port that nobody listens at, outside of the range that connections take theirs from."""
    while True:
        port = random.SystemRandom().randrange(15000, 32000)
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port


def launch(
    count: int, function: Callable[..., Any], *args: Any, env: dict[str, str] | None = None
) -> dict[int, tuple[int, int]]:
    """Fork `count` processes that call `function(rank, *args)`; rank -> (pid, pipe)."""
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())} | (env or {})
    started = {}
    for rank in range(count):
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            _child(rank, count, function, args, common, writing)
        os.close(writing)
        started[rank] = (pid, reading)
    return started


def _child(
    rank: int,
    count: int,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    env: dict[str, str],
    pipe: int,
) -> None:
    os.environ.update(env, RANK=str(rank), WORLD_SIZE=str(count), LOCAL_WORLD_SIZE=str(count))
    code = 0
    try:
        outcome = Outcome(function(rank, *args))
    except BaseException as error:
        outcome = Outcome(error=f"{type(error).__name__}: {error}")
        if not isinstance(error, SystemExit):
            outcome.error += "\n" + traceback.format_exc()
        code = 1
    with os.fdopen(pipe, "wb") as stream:
        pickle.dump(outcome, stream)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def collect(started: dict[int, tuple[int, int]], seconds: float = 60.0) -> dict[int, Outcome]:
    """Wait for the processes; those that hang are killed and reported."""
    deadline = time.monotonic() + seconds
    outcomes: dict[int, Outcome] = {}
    waiting = dict(started)
    content = dict.fromkeys(started, b"")
    for _, pipe in started.values():
        os.set_blocking(pipe, False)
    while waiting:
        for rank, (pid, pipe) in list(waiting.items()):
            try:
                while part := os.read(pipe, 1 << 20):
                    content[rank] += part
            except BlockingIOError:
                pass
            done, status = os.waitpid(pid, os.WNOHANG)
            if not done and time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                outcomes[rank] = Outcome(error=f"hung for {seconds} s")
                waiting.pop(rank)
            elif done:
                while part := _read(pipe):
                    content[rank] += part
                outcome = pickle.loads(content[rank]) if content[rank] else Outcome(error="died")
                outcome.code = os.waitstatus_to_exitcode(status)
                outcomes[rank] = outcome
                os.close(pipe)
                waiting.pop(rank)
        time.sleep(0.005)
    return dict(sorted(outcomes.items()))


def _read(pipe: int) -> bytes:
    try:
        return os.read(pipe, 1 << 20)
    except BlockingIOError:
        return b""


def run(
    count: int,
    function: Callable[..., Any],
    *args: Any,
    seconds: float = 60.0,
    env: dict[str, str] | None = None,
) -> list[Any]:
    """The results of all ranks; AssertionError with the traceback of any that failed."""
    outcomes = collect(launch(count, function, *args, env=env), seconds)
    failed = [f"rank {rank}: {o.error}" for rank, o in outcomes.items() if o.error]
    assert not failed, "\n".join(failed)
    return [outcomes[rank].value for rank in range(count)]
