"""A process that is to take a rank's place gets ready, and waits until its turn has come.

So whoever has that rank goes on while another process starts and imports what it needs.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys

TURN = "HADPSGD_TURN"
"""Descriptor of the socket that leads to who started this process (`ranks` has the other side)."""
READY = GO = IN = b"."
GONE = 1
"""Exit status of who waits for a launcher that has ended."""


_launcher: socket.socket | None = None


def wait() -> None:
    """Say that this process is ready, and wait for its turn; at once if it need not."""
    global _launcher
    descriptor = os.environ.pop(TURN, "")
    if descriptor:
        _launcher = socket.socket(fileno=int(descriptor))
        _launcher.sendall(READY)
        if _launcher.recv(len(GO)) != GO:  # it has ended
            sys.exit(GONE)


def taken() -> None:
    """Say that this process takes part: others can do without it from here on."""
    global _launcher
    if _launcher is not None:
        with contextlib.suppress(BrokenPipeError), _launcher:
            _launcher.sendall(IN)
        _launcher = None
