"""SIGTERM and SIGUSR1 (preemption, a time limit): stop at the next moment that all agree on.

A process that trains catches them from its first moment on: one that comes during slow imports is
kept until training can hear of it, and one that comes while it is leaving does not kill it there.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
_kept = False


def catch() -> None:
    """From now on they do not end this process; called before anything slow is imported."""
    for number in SIGNALS:
        signal.signal(number, _keep)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def hold() -> None:
    """For a child between fork and exec: they wait until it calls `catch`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def asked() -> bool:
    """Whether one came since `catch`, outside of an `Interrupt`."""
    return _kept


def _keep(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    global _kept
    _kept = True


class Interrupt:
    """While the block runs, the signals call `request` instead of ending the process.

    One that was kept calls it at once; those that come after the block, on the way out of a
    process that was asked to stop, change nothing.
    """

    def __init__(self, request: Callable[[], None]) -> None:
        self._request = request
        self._before: dict[signal.Signals, Any] = {}
        self._asked = False

    def __enter__(self) -> Interrupt:
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._caught)
        if asked():
            self._caught(signal.SIGTERM, None)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            # ignored: as it ends, Python takes its own handlers away
            leaving = self._asked and handler is _keep
            signal.signal(number, signal.SIG_IGN if leaving else handler)

    def _caught(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._asked = True
        self._request()
