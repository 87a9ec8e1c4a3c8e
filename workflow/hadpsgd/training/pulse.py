"""Signs of life of a rank, for who started it (`vigil` has the other side).

A thread writes a byte into an inherited pipe twice a second. A process that is stopped, or in which
one thread keeps Python's lock, writes none. The byte says whether the training thread gets on: a
gradient that takes far longer than any before it is one that will not end.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from collections.abc import Callable

PULSE = "HADPSGD_PULSE"
"""The pipe's descriptor."""
BEAT_SECONDS = 0.5
WELL, STUCK, LEAVES = b"+", b"-", b"."
FAR_LONGER = 10
"""A gradient is said to be stuck when it takes so many times as long as the longest one before."""


class Pulse:
    """See the module.

    Args:
        descriptor: of the pipe; it is never waited for.
        clock: seconds.
    """

    def __init__(self, descriptor: int, clock: Callable[[], float] = time.monotonic) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.clock = clock
        self._begun: float | None = None
        """When the gradient under way was begun."""
        self._longest = 0.0

    def start(self) -> None:
        """Beat until the process ends, which it says: no thread but one runs while Python ends."""
        atexit.register(self._tell, LEAVES)
        threading.Thread(target=self._beat, name="pulse", daemon=True).start()

    def works(self) -> None:
        """The training thread begins on a gradient: what comes next does not wait for others."""
        self._begun = self.clock()

    def waits(self) -> None:
        """It has it, and does what may take as long as others make it."""
        begun, self._begun = self._begun, None
        if begun is not None:
            self._longest = max(self._longest, self.clock() - begun)

    def sign(self) -> bytes:
        """What is to be said now; of the first gradient nobody knows how long it may take."""
        begun = self._begun
        far = FAR_LONGER * self._longest
        return STUCK if begun is not None and 0 < far < self.clock() - begun else WELL

    def _beat(self) -> None:
        while True:
            self._tell(self.sign())
            time.sleep(BEAT_SECONDS)

    def _tell(self, sign: bytes) -> None:
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self.descriptor, sign)


_pulse: Pulse | None = None


def begin() -> None:
    """This process is a rank; without a pipe that it inherited there is nobody to tell."""
    global _pulse
    if (descriptor := os.environ.get(PULSE)) and _pulse is None:
        _pulse = Pulse(int(descriptor))
        _pulse.start()


def works() -> None:
    """As `Pulse.works`."""
    if _pulse is not None:
        _pulse.works()


def waits() -> None:
    """As `Pulse.waits`."""
    if _pulse is not None:
        _pulse.waits()
