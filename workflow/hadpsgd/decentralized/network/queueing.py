"""How much of a snapshot lies in the kernel: what a slow link carries in a moment, and no more.

What lies there goes out before all that this host says later, on other connections too. If it is a
whole snapshot, answers to partners and claims for work wait until the link has carried it. So no
more is handed over than the link carries in a few milliseconds. How fast it is the kernel tells:
bytes that were acknowledged, and the time in which there were some to send. If the kernel runs out
of bytes before this process gets round to giving it more, it is given a few times as much.
"""

from __future__ import annotations

import array
import fcntl
import socket
import struct
import sys
import termios

BUFFER_BYTES = 4 * 2**20
"""Of the kernel, in each direction; on a fast link all of it is used."""
FIRST_BYTES, LEAST_BYTES = 2**18, 4608
QUEUE_SECONDS = 0.01
"""So long a link is to need for what the kernel holds, in addition to two round trips."""
LOOK_SECONDS = 0.1
"""Of sending, after which it is looked how fast the link is."""
LATE = 4
"""So many times as much is held, at most, where the kernel runs out of bytes meanwhile."""
_LINUX = sys.platform == "linux"
_ACKNOWLEDGED, _ROUND_TRIP, _BUSY = 120, 148, 168
"""Places in Linux's `struct tcp_info`: bytes; microseconds, the least; microseconds of sending, and
of these such in which the receiver had no room."""
_INFO_BYTES = 184


class Queue:
    """What one connection may hold in the kernel."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.limit = BUFFER_BYTES
        """Bytes, sent and not acknowledged ones too."""
        self._carried = BUFFER_BYTES
        self._waiting = False
        self._acknowledged, self._busy = 0, 0.0
        if self._info():
            self._hold(FIRST_BYTES)

    def room(self) -> int:
        """Bytes that may be handed over now."""
        if not self._look():
            return BUFFER_BYTES
        held = self._held()
        if self._waiting and not held:
            self._hold(min(2 * self.limit, LATE * self._carried))
        return BUFFER_BYTES if self.limit == BUFFER_BYTES else self.limit - held

    def given(self, *, all_: bool) -> None:
        """So much was handed over: all there was, or not; then the selector waits for room."""
        self._waiting = not all_

    def _look(self) -> bool:
        """Keep to the link's speed, if it was used since the last look; False if nobody tells."""
        info = self._info()
        if not info:
            return False
        (acknowledged,) = struct.unpack_from("Q", info, _ACKNOWLEDGED)
        busy, full = struct.unpack_from("QQ", info, _BUSY)
        sending = 1e-6 * (busy - full)
        if sending >= self._busy + LOOK_SECONDS:
            count, seconds = acknowledged - self._acknowledged, sending - self._busy
            self._acknowledged, self._busy = acknowledged, sending
            if not self._waiting and count < self.limit:  # short messages wait for late answers
                return True
            rate = count / seconds
            (round_trip,) = struct.unpack_from("I", info, _ROUND_TRIP)
            self._carried = max(int(rate * (QUEUE_SECONDS + 2e-6 * round_trip)), LEAST_BYTES)
            self._hold(self._carried)
        return True

    def _hold(self, limit: int) -> None:
        limit = min(limit, BUFFER_BYTES)
        if limit != self.limit:
            self.limit = limit
            # the kernel doubles it, and says that there is room from a third of that on: never
            # while `limit` bytes lie there, since each of them takes a byte or more
            size = limit if limit == BUFFER_BYTES else limit // 2
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)

    def _held(self) -> int:
        held = array.array("i", [0])
        fcntl.ioctl(self.sock, termios.TIOCOUTQ, held)
        return held[0]

    def _info(self) -> bytes:
        """Nothing where the system does not tell."""
        if not _LINUX or self.sock.family == socket.AF_UNIX:
            return b""
        try:
            info = self.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
        except OSError:  # it has ended
            return b""
        return info if len(info) == _INFO_BYTES else b""
