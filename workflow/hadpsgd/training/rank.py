"""One rank: its process, its log, and what is said to it."""

from __future__ import annotations

import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

from hadpsgd.orphans import end_with_parent
from hadpsgd.training import interrupt
from hadpsgd.training.turn import READY

_PR_SET_PDEATHSIG = 1


@dataclass(kw_only=True)
class Rank:
    """One process and its log, to which every attempt appends."""

    number: int
    process: subprocess.Popen[bytes]
    log: Path
    begin: int
    """Where this attempt's part of the log begins."""
    joins_until: float
    """Until then it is not counted on."""
    watched: int
    """Its number in the vigil."""
    turn: socket.socket | None = None
    """Of one that comes to another: it says there that it is ready, then that it takes part."""
    orders: socket.socket | None = None
    """To a member of a super-learner, which may take the first one's place."""
    code: int | None = None
    silent: str = ""
    """Why it was ended as one that hangs."""

    @property
    def ready(self) -> bool:
        """Whether one that waits for its turn can take it; that has its turn, takes part."""
        assert self.turn is not None
        try:
            return self.turn.recv(len(READY), socket.MSG_PEEK) == READY
        except (BlockingIOError, ConnectionResetError):
            return False

    def hang_up(self) -> None:
        """There is nothing more to be said."""
        if self.turn is not None:
            self.turn.close()
            self.turn = None

    def closed(self) -> None:
        """It has ended."""
        self.hang_up()
        if self.orders is not None:
            self.orders.close()
            self.orders = None

    def last_line(self) -> str:
        """Of what this attempt wrote."""
        with self.log.open("rb") as stream:
            stream.seek(self.begin)
            lines = stream.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


def prepare_rank() -> None:
    """For Popen's preexec_fn: it ends with its parent, and signals wait until it can hear them."""
    interrupt.hold()
    end_with_parent()
