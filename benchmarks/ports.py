"""Ports for benchmarks of several processes."""

from __future__ import annotations

import contextlib
import random
import socket


def free_port() -> int:
    """A port outside of the range that connections take theirs from."""
    while True:
        port = random.randrange(15000, 32000)
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
