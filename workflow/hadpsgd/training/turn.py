"""A process that is to take a rank's place gets ready, and waits until its turn has come.

So whoever has that rank goes on while another process starts and imports what it needs.
"""

from __future__ import annotations

import os
import socket
import sys

TURN = "HADPSGD_TURN"
"""Descriptor of the socket that leads to who started this process (`ranks` has the other side)."""
READY = GO = b"."
GONE = 1
"""Exit status of who waits for a launcher that has ended."""


def wait() -> None:
    """Say that this process is ready, and wait for its turn; at once if it need not."""
    descriptor = os.environ.pop(TURN, "")
    if descriptor:
        with socket.socket(fileno=int(descriptor)) as launcher:
            launcher.sendall(READY)
            if launcher.recv(len(GO)) != GO:  # it has ended
                sys.exit(GONE)
