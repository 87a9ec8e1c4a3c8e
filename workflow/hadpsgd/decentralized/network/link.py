"""One connection between two learners: non-blocking, nothing copied.

Its two ends show each other their memory (`shelf`), which works on one host.
"""

from __future__ import annotations

import contextlib
import itertools
import selectors
import socket
from collections import deque

from hadpsgd.decentralized.network.queueing import BUFFER_BYTES, Queue
from hadpsgd.decentralized.network.shelf import Shelf, Shown
from hadpsgd.decentralized.network.wire import SHELVES, SIZE, Header, Kind

KEEPALIVE = (("TCP_KEEPIDLE", 1), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 3))
"""A host that vanishes is noticed after about four seconds."""
UNACKNOWLEDGED_MS = 4000


class Link:
    """One connection, non-blocking: what is still to be sent, what has come so far."""

    def __init__(self, sock: socket.socket, *, peer: int | None, epoch: int = 0) -> None:
        sock.setblocking(False)
        _tune(sock)
        self.sock = sock
        self.peer = peer
        self.epoch = epoch
        """Membership in which it was made."""
        self.outbox: deque[memoryview] = deque()
        self.header: Header | None = None
        """A header that came, until it is dealt with."""
        self.target: memoryview | None = None
        """Where the rest of the weights under way goes."""
        self.watched = 0
        """Events that the selector waits for."""
        self.ended = False
        """Whether the partner closed it, or died."""
        self.seen = False
        """Whether the partner reads this learner's shelf."""
        self._shown: Shown | None = None
        self._queue = Queue(sock)
        self._head = bytearray(SIZE)
        self._got = 0

    def send(self) -> int:
        """Send what the kernel takes; the bytes sent."""
        sent = 0
        room = self._queue.room() if self.outbox else 0
        while self.outbox and room > 0:
            try:
                n = self.sock.sendmsg(self._piece(room))
            except BlockingIOError:
                break
            except OSError:
                self.ended = True
                self.outbox.clear()
                break
            sent += n
            room -= n
            while n:
                first = self.outbox.popleft()
                if n < len(first):
                    self.outbox.appendleft(first[n:])
                    break
                n -= len(first)
        self._queue.given(all_=not self.outbox)
        return sent

    def _piece(self, room: int) -> list[memoryview]:
        """What to hand over at once; the kernel takes more than it has room for, if it is asked."""
        piece = []
        for message in itertools.islice(self.outbox, 8):
            piece.append(message[:room])
            room -= len(piece[-1])
            if not room:
                break
        return piece

    def read_header(self) -> bool:
        """Whether a header is there."""
        while self.header is None:
            self._got += self._receive(memoryview(self._head)[self._got :])
            if self._got < SIZE:
                return False
            header, self._got = Header.unpack(self._head), 0
            if header.kind in SHELVES:
                self._hear_of_shelf(header)
            else:
                self.header = header
        return True

    def read_weights(self) -> bool:
        """Whether the weights have arrived whole."""
        while self.target:
            n = self._receive(self.target)
            if not n:
                return False
            self.target = self.target[n:]
        return True

    def show(self, shelf: Shelf, rank: int) -> None:
        """Let the partner read it, if it is on this host: both ends have one address then."""
        if self.sock.getsockname()[0] != self.sock.getpeername()[0]:
            return
        process, descriptor, number = shelf.description
        message = Header(
            kind=Kind.SHELF,
            sender=rank,
            round=process,
            turn=descriptor,
            at=number,
            nbytes=shelf.nbytes,
        )
        self.outbox.append(memoryview(message.pack()))

    def take_weights(self, into: memoryview) -> bool:
        """What the header says lies in the partner's memory; False if the partner has gone on."""
        assert self.header is not None
        header, shown = self.header, self._shown
        taken = (
            shown is not None
            and len(into) == header.nbytes
            and shown.take(into, at=header.at, turn=header.turn)
        )
        self.ended |= not taken
        return taken

    def _hear_of_shelf(self, header: Header) -> None:
        if header.kind is Kind.SEEN:
            self.seen = True
            return
        with contextlib.suppress(OSError):
            self._shown = Shown((header.round, header.turn, header.at), header.nbytes)
            seen = Header(kind=Kind.SEEN, sender=header.sender)
            self.outbox.append(memoryview(seen.pack()))
            self.send()

    def _receive(self, into: memoryview) -> int:
        try:
            n = self.sock.recv_into(into)
        except BlockingIOError:
            return 0
        except OSError:
            n = 0
        self.ended |= n == 0
        return n

    @property
    def wanted(self) -> int:
        """Events to wait for: a header that waits for its round keeps the rest in the kernel."""
        if self.ended:
            return 0
        reading = selectors.EVENT_READ if self.header is None or self.target else 0
        return reading | (selectors.EVENT_WRITE if self.outbox else 0)


def _tune(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
    # some systems lack some of these
    for name, value in (*KEEPALIVE, ("TCP_USER_TIMEOUT", UNACKNOWLEDGED_MS)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
