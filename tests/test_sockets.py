"""Connections of a library, found and shut down, without a descriptor that stays."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from many_open import many_open

from hadpsgd.decentralized.network import sockets
from hadpsgd.decentralized.network.words import to_read
from hadpsgd.training.orders import Order, Orders, give, pair


def descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def test_looking_leaves_nothing_open(tmp_path: Path) -> None:
    """Copies of files stayed open: each look doubled them, and the eighth reunion was the last."""
    with (tmp_path / "a").open("w"), socket.create_server(("127.0.0.1", 0)):
        before = descriptors()
        for _ in range(3):
            assert sockets.found()
            sockets.shut_down(sockets.new_since({}))
        assert descriptors() == before


def test_what_is_new_is_shut_down_under_its_user() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        before = sockets.found()
        assert server.fileno() in before and before[server.fileno()][1] is None
        with socket.create_connection(server.getsockname()) as here, server.accept()[0] as there:
            new = sockets.new_since(before)
            # what is accepted has the listener's address
            assert [descriptor for descriptor, _ in new] == [here.fileno()]
            sockets.shut_down(new)
            assert there.recv(1) == b""
            with pytest.raises(OSError, match=os.strerror(32)):  # EPIPE
                here.send(b"x")


def test_beside_many_open_files() -> None:
    """Of a shard each, say: select() refuses what has a number above 1023."""
    with many_open():
        launcher, rank = pair()
        with launcher, rank:
            orders = Orders(rank)
            assert not orders.waiting
            give(launcher, Order(rank=3, life=1))
            assert orders.waiting and orders.last() == Order(rank=3, life=1)
            launcher.close()
            assert to_read([rank]) == {rank.fileno()}
    assert to_read([]) == set()
