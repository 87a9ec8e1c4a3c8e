"""What of a snapshot lies in the kernel: little on a slow link, whatever was to be sent."""

from __future__ import annotations

import array
import contextlib
import fcntl
import selectors
import socket
import statistics
import sys
import termios
import threading
import time
from collections.abc import Iterator

import pytest

from hadpsgd.decentralized.network.link import Link
from hadpsgd.decentralized.network.queueing import BUFFER_BYTES, FIRST_BYTES, LOOK_SECONDS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux tells how fast a link is")
BYTES_A_SECOND = 2_000_000
SO_MAX_PACING_RATE = 47


@contextlib.contextmanager
def pair() -> Iterator[tuple[Link, socket.socket]]:
    """A link to a socket."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs = listener.accept()[0]
    with ours, theirs:
        yield Link(ours, peer=1), theirs


def send(link: Link, content: bytes, *, looks: list[int]) -> None:
    """As `Connections` does; `looks`: bytes in the kernel whenever some were handed over."""
    link.outbox.append(memoryview(content))
    idle = 0
    with selectors.DefaultSelector() as selector:
        selector.register(link.sock, selectors.EVENT_WRITE)
        while link.outbox:
            idle += not link.send()
            looks.append(held(link))
            selector.select(1.0)
    assert idle < 20 + len(looks) / 4, "woken up for nothing"


def held(link: Link) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(link.sock, termios.TIOCOUTQ, count)
    return count[0]


def test_short_messages_that_nobody_answers_leave_a_fast_link_fast() -> None:
    """The receiver's kernel acknowledges them late: that says nothing of the link."""
    with pair() as (link, theirs):
        for _ in range(8):
            theirs.sendall(b".")  # whoever speaks itself waits for that to acknowledge with
            link.sock.recv(1)
            send(link, bytes(80), looks=[])
            theirs.recv(80, socket.MSG_WAITALL)
            while held(link):
                time.sleep(0.001)
        looks: list[int] = []
        thread, content = received(theirs, 2**22)
        send(link, bytes(2**22), looks=looks)
        thread.join(60)
        assert len(content) == 2**22
        assert len(looks) < 100


def received(sock: socket.socket, count: int) -> tuple[threading.Thread, bytearray]:
    content = bytearray()

    def read() -> None:
        while len(content) < count:
            content.extend(sock.recv(2**20))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread, content


def test_a_slow_link_holds_what_it_carries_in_a_moment() -> None:
    content = bytes(range(256)) * 2**13  # 2 MiB: a second of the link
    with pair() as (link, theirs):
        # the kernel spaces the packets out: a link of so many bytes a second
        link.sock.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, BYTES_A_SECOND)
        thread, came = received(theirs, len(content))
        looks: list[int] = []
        send(link, content, looks=looks)
        thread.join(60)
        assert came == content
        later = looks[len(looks) // 2 :]
        assert statistics.median(later) < BYTES_A_SECOND * 0.05, "more than it carries in 50 ms"
        assert max(later) < len(content) / 8


def test_a_link_that_nobody_slows_gets_all_the_room_there_is() -> None:
    content = bytes(range(256)) * 2**18  # 64 MiB
    with pair() as (link, theirs):
        thread, came = received(theirs, len(content))
        largest = 0
        link.outbox.append(memoryview(content))
        with selectors.DefaultSelector() as selector:
            selector.register(link.sock, selectors.EVENT_WRITE)
            while link.outbox:
                link.send()
                largest = max(largest, link._queue.limit)
                selector.select(1.0)
        thread.join(60)
        assert came == content
        assert largest > FIRST_BYTES


def test_a_partner_without_room_is_no_slow_link() -> None:
    with pair() as (link, theirs):
        link.outbox.append(memoryview(bytes(64 * 2**20)))
        waiting = threading.Event()
        with selectors.DefaultSelector() as selector:
            selector.register(link.sock, selectors.EVENT_WRITE)
            while selector.select(0.1):  # until its buffer is full
                link.send()
            waiting.wait(3 * LOOK_SECONDS)  # it reads nothing
            before = link._queue.limit
            link.send()
            assert link._queue.limit == before > FIRST_BYTES // 2
        assert link.outbox and before <= BUFFER_BYTES
        link.sock.close()
        theirs.close()
