"""Run a function in many forked processes, as torchrun would start it, and collect the results.

Forking after torch is imported takes milliseconds; a spawned process would import it for seconds.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from servers import free_port

torch.set_num_threads(1)


@dataclass
class Outcome:
    """How a process ended."""

    value: Any = None
    error: str = ""
    code: int | None = None


class Process:
    """A forked process and the pipe through which its result comes."""

    def __init__(self, pid: int, pipe: int) -> None:
        self.pid = pid
        self._pipe = pipe
        self._content = b""

    def reap(self) -> Outcome | None:
        """Its outcome if it has ended."""
        self._read()
        done, status = os.waitpid(self.pid, os.WNOHANG)
        if not done:
            return None
        self._read()
        os.close(self._pipe)
        outcome = pickle.loads(self._content) if self._content else Outcome(error="died")
        outcome.code = os.waitstatus_to_exitcode(status)
        return outcome

    def kill(self) -> None:
        """End it for good; it shows on stderr where it was."""
        os.kill(self.pid, signal.SIGUSR2)
        time.sleep(0.05)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._pipe)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self._pipe, 1 << 20):
                self._content += part


def launch(
    count: int, function: Callable[..., Any], *args: Any, env: dict[str, str] | None = None
) -> dict[int, Process]:
    """Fork `count` processes that call `function(rank, *args)`."""
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())} | (env or {})
    return {rank: launch_rank(rank, count, function, *args, env=common) for rank in range(count)}


def launch_rank(
    rank: int, count: int, function: Callable[..., Any], *args: Any, env: dict[str, str]
) -> Process:
    """Fork one of them."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _child(rank, count, function, args, env, writing)
    os.close(writing)
    os.set_blocking(reading, False)
    return Process(pid, reading)


def _child(
    rank: int,
    count: int,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    env: dict[str, str],
    pipe: int,
) -> None:
    os.environ.update(env, RANK=str(rank), WORLD_SIZE=str(count), LOCAL_WORLD_SIZE=str(count))
    faulthandler.register(signal.SIGUSR2)
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


def collect(started: dict[int, Process], seconds: float = 60.0) -> dict[int, Outcome]:
    """Wait for the processes; those that hang are killed and reported."""
    deadline = time.monotonic() + seconds
    outcomes: dict[int, Outcome] = {}
    waiting = dict(started)
    while waiting:
        for rank, process in list(waiting.items()):
            outcome = process.reap()
            if outcome is None and time.monotonic() > deadline:
                process.kill()
                outcome = Outcome(error=f"hung for {seconds} s")
            if outcome is not None:
                outcomes[rank] = outcome
                del waiting[rank]
        time.sleep(0.005)
    return dict(sorted(outcomes.items()))


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


def run_beside(
    calls: Mapping[str, tuple[int, Callable[..., Any], tuple[Any, ...]]],
    *,
    together: int = 5,
    seconds: float = 60.0,
) -> dict[str, list[Any] | str]:
    """Several runs of (count, function, arguments), so many side by side: by name the results of
    all ranks, or what went wrong in some."""
    found: dict[str, list[Any] | str] = {}
    names = list(calls)
    for first in range(0, len(names), together):
        part = names[first : first + together]
        started = {n: launch(calls[n][0], calls[n][1], *calls[n][2]) for n in part}
        for name, processes in started.items():
            outcomes = collect(processes, seconds)
            failed = [f"rank {rank}: {o.error}" for rank, o in outcomes.items() if o.error]
            found[name] = "\n".join(failed) or [o.value for o in outcomes.values()]
    return found
