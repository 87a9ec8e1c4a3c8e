"""Waits for what a library has under way that end when its connections do.

gloo fails the operations that have not begun when a connection ends. One whose message is half
received, or half sent, it forgets: who waits for it waits for the whole time-out (minutes), and
cannot be called back. So where a process goes on without others, a thread waits in place of the one
that computes, which looks meanwhile whether the connections are there (`Waiter`). If one is not,
gloo has closed it and touches no buffer any more. Where a process cannot go on without the others,
it waits by itself, and another thread ends the process if a connection is not there (`Watch`).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Collection
from queue import SimpleQueue

from hadpsgd.decentralized.core.engine import LostMemberError
from hadpsgd.decentralized.network import sockets
from hadpsgd.decentralized.network.sockets import Names

LOOK_SECONDS = 0.25
CLOSE_SECONDS = 3.0
"""gloo closes a connection that was shut down at once; longer is not waited for."""
LOST = 1
"""Exit status of a process that ends because it waits for what never comes."""


class Waiter:
    """Waits in a thread of its own.

    Args:
        connections: those by which what is waited for goes.
    """

    def __init__(self, connections: Collection[tuple[int, Names]]) -> None:
        self.connections = connections
        self._asked: SimpleQueue[_Wait | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def run(self, wait: Callable[[], None]) -> None:
        """Do `wait` there, and raise what it raises.

        Raises:
            LostMemberError: a connection has ended, and `wait` did not say so.
        """
        if self._thread is None:  # a daemon: one that gloo keeps must not keep the process
            self._thread = threading.Thread(target=self._serve, name="waiting", daemon=True)
            self._thread.start()
        asked, broken = _Wait(wait), False
        self._asked.put(asked)
        while not asked.done.wait(LOOK_SECONDS):
            if broken:  # since the last look: it would have said so by now
                raise LostMemberError("a connection ended in the middle of a message")
            broken = sockets.any_closed(self.connections)
        if asked.error is not None:
            raise asked.error

    def end(self) -> None:
        """Shut the connections down, until gloo lets go of them; nothing more is asked for."""
        sockets.shut_down(self.connections)
        deadline = time.monotonic() + CLOSE_SECONDS
        while not sockets.all_closed(self.connections) and time.monotonic() < deadline:
            time.sleep(0.005)
        self._asked.put(None)

    def _serve(self) -> None:
        while (asked := self._asked.get()) is not None:
            try:
                asked.wait()
            except BaseException as error:
                asked.error = error
            asked.done.set()


class Watch:
    """Waits where it is asked to; a process that waits for what never comes ends.

    Nobody can call it back. Whoever started it sees it end, as if it had been killed.

    Args:
        connections: those by which what is waited for goes.
    """

    def __init__(self, connections: Collection[tuple[int, Names]]) -> None:
        self.connections = connections
        self._waits = 0
        """Begun so far."""
        self._waiting = False
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def run(self, wait: Callable[[], None]) -> None:
        """Do `wait`, by whichever thread; waits do not overlap."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._look, name="watching", daemon=True)
            self._thread.start()
        self._waits += 1
        self._waiting = True
        try:
            wait()
        finally:
            self._waiting = False

    def end(self) -> None:
        """Nothing more is waited for."""
        self._ended.set()

    def _look(self) -> None:
        broken = 0
        """The wait in which a connection was not there; gloo ends the wait at once, if it can."""
        while not self._ended.wait(LOOK_SECONDS):
            number = self._waits
            if not self._waiting or not sockets.any_closed(self.connections):
                broken = 0
            elif broken != number:
                broken = number
            elif self._waiting and self._waits == number:
                sys.stderr.write("a connection ended in the middle of a message: nothing comes\n")
                sys.stderr.flush()
                os._exit(LOST)


class _Wait:
    """What the thread is asked to wait for."""

    def __init__(self, wait: Callable[[], None]) -> None:
        self.wait = wait
        self.done = threading.Event()
        self.error: BaseException | None = None
