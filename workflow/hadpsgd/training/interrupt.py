"""SIGTERM and SIGUSR1 (preemption, a time limit): stop at the next moment that all agree on."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class Interrupt:
    """While the block runs, the signals call `request` instead of ending the process."""

    def __init__(self, request: Callable[[], None]) -> None:
        self._request = request
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupt:
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._caught)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _caught(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._request()
