"""The connections of one learner: made when two first meet, watched by one selector.

The higher rank connects, the lower listens. When the membership changes all connections are made
anew, so that nothing of the old one is left in them; HELLO says to which membership a connection
belongs.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Callable

from hadpsgd.decentralized.network.link import Link
from hadpsgd.decentralized.network.shelf import Shelf
from hadpsgd.decentralized.network.wire import Header, Kind

Address = tuple[str, int]
CONNECT_SECONDS = 3.0
PROBE_SECONDS = 1.0
"""A partner that should connect and has not for so long is asked whether it lives."""


class Connections:
    """See the module.

    Args:
        rank: this rank.
        publish: makes this rank's address known.
        lookup: a rank's address, None if not known yet.
        host: the address to listen at.
        shelf: what partners on the host may read.
    """

    def __init__(
        self,
        rank: int,
        publish: Callable[[Address], None],
        lookup: Callable[[int], Address | None],
        host: str,
        shelf: Shelf | None = None,
    ) -> None:
        self.rank = rank
        self.epoch = 0
        self.links: dict[int, Link] = {}
        self._early: list[Link] = []
        self._asked: dict[int, float] = {}
        self._lookup = lookup
        self._shelf = shelf
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server((host, 0), backlog=256)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, self._drain)
        publish((host, self._listener.getsockname()[1]))

    def to(self, j: int) -> Link | None:
        """The connection to rank `j`; None as long as there is none.

        Raises:
            ConnectionError: it cannot be made: nobody listens there any more.
        """
        link = self.links.get(j)
        if link is None and j < self.rank:
            return self._connect(j)
        if link is None and time.monotonic() > self._asked.setdefault(j, self._soon()):
            self._asked[j] = self._soon()
            if not self.lives(j):
                raise ConnectionRefusedError(f"rank {j} does not listen")
        return link

    def ended(self) -> set[int]:
        """Ranks that closed their connection, or died, and left nothing to be read."""
        return {j for j, link in self.links.items() if link.ended and link.header is None}

    def lives(self, j: int) -> bool:
        """Whether rank `j` accepts connections (or was never heard of yet)."""
        address = self._lookup(j)
        try:
            if address is not None:
                socket.create_connection(address, timeout=CONNECT_SECONDS).close()
        except OSError:
            return False
        return True

    def events(self, seconds: float) -> None:
        """Wait for events and handle them."""
        for link in list(self.links.values()):
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

    def wake(self) -> None:
        """End `events`, from another thread."""
        with contextlib.suppress(BlockingIOError):
            self._waker.send(b"\0")

    def reset(self, epoch: int) -> None:
        """Let go of all connections; those that others made for the new membership stay."""
        for link in self.links.values():
            self._close(link)
        self.epoch = epoch
        early, self._early = self._early, []
        self.links, self._asked = {}, {}
        for link in early:
            self._file(link)

    def drop(self, j: int) -> None:
        """Let go of the connection to rank `j`, and of what was still to be sent on it."""
        link = self.links.pop(j, None)
        if link is not None:
            self._close(link)

    def close(self) -> None:
        """Close all sockets."""
        for link in (*self.links.values(), *self._early):
            link.sock.close()
        for sock in (self._listener, self._woken, self._waker):
            sock.close()
        self._selector.close()

    def _connect(self, j: int) -> Link | None:
        address = self._lookup(j)
        if address is None:
            return None
        sock = socket.create_connection(address, timeout=CONNECT_SECONDS)
        link = Link(sock, peer=j, epoch=self.epoch)
        hello = Header(kind=Kind.HELLO, sender=self.rank, epoch=self.epoch)
        link.outbox.append(memoryview(hello.pack()))
        self._begin(j, link)
        return link

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._watch(Link(self._listener.accept()[0], peer=None))

    def _greet(self, link: Link) -> None:
        """The first header of an accepted connection says who it is; strangers are shown out."""
        try:
            if not link.read_header() and not link.ended:
                return
            header, link.header = link.header, None
        except ConnectionError:
            header = None
        if header is None or header.kind is not Kind.HELLO:
            self._close(link)
            return
        link.peer, link.epoch = header.sender, header.epoch
        self._file(link)

    def _file(self, link: Link) -> None:
        """Put a connection where it belongs: now, later, or nowhere."""
        if link.epoch > self.epoch:
            self._early.append(link)
            self._unwatch(link)
        elif link.epoch < self.epoch or link.peer is None:
            self._close(link)
        else:
            self._begin(link.peer, link)

    def _begin(self, j: int, link: Link) -> None:
        self.links[j] = link
        if self._shelf is not None:
            link.show(self._shelf, self.rank)

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

    def _unwatch(self, link: Link) -> None:
        if link.watched:
            self._selector.unregister(link.sock)
            link.watched = 0

    def _close(self, link: Link) -> None:
        self._unwatch(link)
        link.sock.close()

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)

    @staticmethod
    def _soon() -> float:
        return time.monotonic() + PROBE_SECONDS
