"""Exchange of snapshots over TCP: one thread, any number of partners at once, nothing polled.

Connections are made when two learners first meet: the higher rank connects, the lower listens.
A snapshot is read from the socket only in its round, into a buffer that is kept: whoever is early
waits in the kernel's buffers.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from hadpsgd.decentralized.transport import Arrival
from hadpsgd.decentralized.wire import SIZE, Header, Kind, Note

BUFFER_BYTES = 4 * 2**20
Address = tuple[str, int]


class Link:
    """One connection, non-blocking: what is still to be sent, what has come so far."""

    def __init__(self, sock: socket.socket, peer: int | None) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
        self.sock = sock
        self.peer = peer
        self.outbox: deque[memoryview] = deque()
        self.header: Header | None = None
        """A header that came, until it is dealt with."""
        self.target: memoryview | None = None
        """Where the rest of the weights under way goes."""
        self.watched = 0
        """Events that the selector waits for."""
        self.ended = False
        """Whether the partner closed it, or died."""
        self._head = bytearray(SIZE)
        self._got = 0

    def send(self) -> int:
        """Send what the kernel takes; the bytes sent."""
        sent = 0
        while self.outbox:
            try:
                n = self.sock.sendmsg(list(self.outbox)[:8])
            except BlockingIOError:
                break
            except OSError:
                self.ended = True
                self.outbox.clear()
                break
            sent += n
            while n:
                first = self.outbox.popleft()
                if n < len(first):
                    self.outbox.appendleft(first[n:])
                    break
                n -= len(first)
        return sent

    def read_header(self) -> bool:
        """Whether a header is there."""
        if self.header is None:
            self._got += self._receive(memoryview(self._head)[self._got :])
            if self._got == SIZE:
                self.header, self._got = Header.unpack(self._head), 0
        return self.header is not None

    def read_weights(self) -> bool:
        """Whether the weights have arrived whole."""
        while self.target:
            n = self._receive(self.target)
            if not n:
                return False
            self.target = self.target[n:]
        return True

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


class _Round:
    """How far an exchange is."""

    def __init__(
        self, number: int, receives: Sequence[int], sends: Sequence[int], buffers: Sequence[Tensor]
    ) -> None:
        self.number = number
        self.receives, self.sends = set(receives), set(sends)
        self.open = self.receives | self.sends
        """Partners with whom the exchange is not settled."""
        self.buffers = dict(zip(receives, buffers, strict=False))
        self.unsent = set(sends)
        self.arrived: dict[int, Arrival] = {}
        self.acknowledged: set[int] = set()

    def flushed(self, j: int, *, done: bool) -> None:
        """All that there was to say to partner `j` is said."""
        settled = j not in self.unsent and (
            (j in self.arrived or j not in self.receives)
            and (j in self.acknowledged or j not in self.sends)
        )
        if done and settled:
            self.open.discard(j)


class TcpTransport:
    """See `Transport`.

    Args:
        rank: this rank.
        like: a tensor of the type and length of a snapshot, on the CPU.
        publish: makes this rank's address known.
        lookup: a rank's address; blocks until it is known.
        host: the address to listen at.
        timeout: seconds of silence in an exchange until its partners are given up.
    """

    def __init__(
        self,
        rank: int,
        like: Tensor,
        *,
        publish: Callable[[Address], None],
        lookup: Callable[[int], Address],
        host: str = "127.0.0.1",
        timeout: float = 600.0,
        pin: bool = False,
    ) -> None:
        self.rank = rank
        self.timeout = timeout
        self.bytes_sent = self.bytes_received = 0
        self._lookup = lookup
        self._make: Callable[[], Tensor] = lambda: torch.empty_like(like, pin_memory=pin)
        self._snapshot = self._make()
        self._incoming: list[Tensor] = []
        self._links: dict[int, Link] = {}
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server((host, 0), backlog=256)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, self._drain)
        publish((host, self._listener.getsockname()[1]))

    def outgoing(self) -> Tensor:
        """The buffer of the next snapshot."""
        return self._snapshot

    def invited(self, round_: int) -> bool:
        """Whether a snapshot of that round or of a later one is at the door."""
        return any(
            link.header is not None
            and link.header.kind is Kind.WEIGHTS
            and link.header.round >= round_
            for link in self._links.values()
        )

    def wait(self, seconds: float) -> None:
        """Handle what comes for at most `seconds`; returns at the first event."""
        self._events(seconds)

    def wake(self) -> None:
        """From another thread."""
        with contextlib.suppress(BlockingIOError):
            self._waker.send(b"\0")

    def exchange(
        self, round_: int, receives: Sequence[int], sends: Sequence[int], note: Note
    ) -> dict[int, Arrival]:
        """One round with all partners at once."""
        current = _Round(round_, receives, sends, self._buffers(len(receives)))
        payload = _bytes(self._snapshot)
        header = Header(Kind.WEIGHTS, self.rank, round_, len(payload), note=note).pack()
        deadline = time.monotonic() + self.timeout
        while True:
            for j in sorted(current.open):
                link = self._links.get(j) or self._connect(j)
                if link is None:
                    continue
                if j in current.unsent:
                    current.unsent.discard(j)
                    link.outbox += [memoryview(header), payload]
                    self.bytes_sent += len(payload)
                self._take(current, j, link)
                link.send()
                current.flushed(j, done=not link.outbox)
                if link.ended and j in current.open:
                    raise ConnectionError(f"rank {self.rank} lost rank {j} in round {round_}")
            if not current.open:
                # in the order asked for, so that sums over them are always the same
                return {j: current.arrived[j] for j in receives}
            self._events(max(0.0, deadline - time.monotonic()))
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"rank {self.rank} heard nothing of ranks {sorted(current.open)} "
                    f"for {self.timeout:.0f} s in round {round_}"
                )

    def _take(self, current: _Round, j: int, link: Link) -> None:
        """Deal with what came from partner `j` as far as this round goes."""
        while link.header is not None and link.header.round == current.number:
            if link.header.kind is Kind.RECEIVED:
                current.acknowledged.add(j)
            else:
                if link.target is None:
                    link.target = _bytes(current.buffers[j])
                if not link.read_weights():
                    return
                current.arrived[j] = Arrival(current.buffers[j], link.header.note)
                self.bytes_received += link.header.nbytes
                received = Header(Kind.RECEIVED, self.rank, current.number)
                link.outbox.append(memoryview(received.pack()))
            link.header = link.target = None
            link.read_header()

    def close(self) -> None:
        """Close all sockets."""
        for link in self._links.values():
            link.sock.close()
        for sock in (self._listener, self._woken, self._waker):
            sock.close()
        self._selector.close()

    def _buffers(self, count: int) -> list[Tensor]:
        while len(self._incoming) < count:
            self._incoming.append(self._make())
        return self._incoming

    def _events(self, seconds: float) -> None:
        """Wait for events and handle them."""
        for link in list(self._links.values()):
            self._watch(link)
        for key, mask in self._selector.select(seconds):
            if not isinstance(key.data, Link):
                key.data()
                continue
            link = key.data
            if link.peer is None:
                self._greet(link)
                continue
            if mask & selectors.EVENT_READ and link.header is None:
                link.read_header()
            if mask & selectors.EVENT_WRITE:
                link.send()
            if link.ended:
                self._watch(link)

    def _greet(self, link: Link) -> None:
        """The first header of an accepted connection says who it is; strangers are shown out."""
        try:
            if not link.read_header() and not link.ended:
                return
            header, link.header = link.header, None
        except ConnectionError:
            header = None
        if header is None or header.kind is not Kind.HELLO:
            self._selector.unregister(link.sock)
            link.sock.close()
            return
        link.peer = header.sender
        self._links[header.sender] = link

    def _connect(self, j: int) -> Link | None:
        if j > self.rank:
            return None
        sock = socket.create_connection(self._lookup(j), timeout=self.timeout)
        link = Link(sock, j)
        link.outbox.append(memoryview(Header(Kind.HELLO, self.rank).pack()))
        self._links[j] = link
        return link

    def _watch(self, link: Link) -> None:
        wanted = link.wanted
        if wanted == link.watched:
            return
        if not wanted:
            self._selector.unregister(link.sock)
        elif not link.watched:
            self._selector.register(link.sock, wanted, link)
        else:
            self._selector.modify(link.sock, wanted, link)
        link.watched = wanted

    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        self._watch(Link(sock, None))

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.numpy().data.cast("B")
