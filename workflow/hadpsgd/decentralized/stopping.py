"""Signals that ask a training to stop: SIGTERM, SIGUSR1 (a scheduler's grace period), Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class Stopping:
    """Calls `request` at these signals, which then do nothing else; a second Ctrl-C does.

    Only a process's main thread can listen; in another one signals do what they did.
    """

    def __init__(self, request: Callable[[], None]) -> None:
        self._request = request
        self._before: dict[signal.Signals, Any] = {}

    def listen(self) -> None:
        """From now on; once is enough."""
        if self._before or threading.current_thread() is not threading.main_thread():
            return
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._caught)

    def leave(self) -> None:
        """Signals do what they did before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _caught(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._request()
        if number == signal.SIGINT:
            signal.signal(number, self._before[signal.SIGINT])
