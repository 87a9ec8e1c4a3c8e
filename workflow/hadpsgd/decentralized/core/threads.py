"""Time and threads as the engine uses them: real ones, or `clock.VirtualClock` in their place."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

from typing_extensions import override


class Condition(Protocol):
    """As `threading.Condition`."""

    def __enter__(self) -> Any: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...
    def wait(self, timeout: float | None = None) -> bool: ...
    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool: ...
    def notify_all(self) -> None: ...


class Clock(Protocol):
    """Time, and tasks that run beside each other in it."""

    def now(self) -> float:
        """Seconds."""

    def sleep(self, seconds: float) -> None:
        """Let the calling task wait."""

    def condition(self, name: str = "a condition") -> Condition:
        """Something to wait for."""

    def spawn(
        self, function: Callable[..., Any], *args: Any, name: str = "", daemon: bool = False
    ) -> Any:
        """Start a task; what comes back has `join`."""


class RealClock(Clock):
    """Wall-clock time and threads."""

    @override
    def now(self) -> float:
        """Of a clock that never jumps."""
        return time.perf_counter()

    @override
    def sleep(self, seconds: float) -> None:
        """The calling thread alone."""
        time.sleep(seconds)

    @override
    def condition(self, name: str = "a condition") -> Condition:
        """A `threading.Condition` (re-entrant)."""
        return threading.Condition()

    @override
    def spawn(
        self, function: Callable[..., Any], *args: Any, name: str = "", daemon: bool = False
    ) -> threading.Thread:
        """A started thread."""
        thread = threading.Thread(target=function, args=args, name=name or None, daemon=daemon)
        thread.start()
        return thread
