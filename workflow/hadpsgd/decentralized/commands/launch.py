"""`hadpsgd launch --learners N script.py`: the processes of a script of one's own, on this host."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from types import FrameType

import torch.distributed as dist

from hadpsgd.decentralized.core.place import share_of_cores
from hadpsgd.decentralized.network.variables import AGENTS
from hadpsgd.errors import UserError
from hadpsgd.numeric import whole
from hadpsgd.orphans import end_with_parent

FORWARDED = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP)
GRACE_SECONDS = 15.0
"""What the others have to end of themselves, once one has failed."""
POLL_SECONDS = 0.05
KILLED = 128
"""Added to a signal's number: the status of who died of it."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "--learners",
        type=whole("--learners", most=4096),
        required=True,
        metavar="N",
        help="processes",
    )
    parser.add_argument(
        "script",
        nargs=argparse.REMAINDER,
        metavar="SCRIPT ...",
        help="a Python script (.py) or a command, and its arguments",
    )


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say; the exit status of the first process that failed.

    Raises:
        UserError: nothing to start, or it cannot be started.
    """
    command = args.script[1:] if args.script[:1] == ["--"] else args.script
    if not command:
        raise UserError(
            "a script is needed",
            fix="hadpsgd launch --learners 8 train.py",
        )
    if command[0].endswith(".py"):
        command = [sys.executable, *command]
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    return Learners(command, args.learners, port=store.port).run()


class Learners:
    """Processes of one command, in whose environment `decentralize` finds the others."""

    def __init__(self, command: list[str], count: int, *, port: int) -> None:
        self.command = command
        self.count = count
        self.port = port
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._status = 0
        """Of the first that failed."""
        self._kill_at = float("inf")

    def run(self) -> int:
        """Until all have ended."""
        before = {number: signal.signal(number, self._pass_on) for number in FORWARDED}
        try:
            for rank in range(self.count):
                self._running[rank] = self._start(rank)
            while self._running:
                self._look()
                time.sleep(POLL_SECONDS)
        finally:
            for process in self._running.values():
                process.kill()
            for number, handler in before.items():
                signal.signal(number, handler)
        return self._status

    def _start(self, rank: int) -> subprocess.Popen[bytes]:
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": self.count}
        place |= {"LOCAL_WORLD_SIZE": self.count, "MASTER_PORT": self.port}
        env = {**os.environ, "MASTER_ADDR": "127.0.0.1", AGENTS: "True"}
        env |= {name: str(value) for name, value in place.items()}
        env.setdefault("OMP_NUM_THREADS", str(share_of_cores(self.count)))
        try:
            # a session of its own: Ctrl-C reaches us alone, and we pass it on once
            return subprocess.Popen(
                self.command,
                env=env,
                start_new_session=True,
                preexec_fn=end_with_parent,  # noqa: PLW1509 - no other Python thread is here
            )
        except OSError as error:
            raise UserError(
                f"cannot be started ({error.strerror})", where=self.command[0]
            ) from None

    def _look(self) -> None:
        for rank, process in list(self._running.items()):
            status = process.poll()
            if status is None:
                continue
            del self._running[rank]
            if status and not self._status:
                self._failed(rank, status)
        if time.monotonic() > self._kill_at:
            for process in self._running.values():
                process.kill()

    def _failed(self, rank: int, status: int) -> None:
        """The first one: the others end, too."""
        self._status = status if status > 0 else KILLED - status
        how = f"ended with status {status}" if status > 0 else f"ended by signal {-status}"
        others = "; the others are ended" if self._running else ""
        print(f"hadpsgd launch: learner {rank} {how}{others}", file=sys.stderr, flush=True)
        self._kill_at = time.monotonic() + GRACE_SECONDS
        self._pass_on(signal.SIGTERM, None)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if number == signal.SIGHUP:  # the terminal is gone: a stop, as the script knows it
            number = signal.SIGTERM
        for process in list(self._running.values()):
            process.send_signal(number)
