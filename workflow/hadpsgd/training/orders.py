"""Who takes the place of a first member that died: the launcher says so, since it alone is sure.

It has seen the end of the process, so the other one cannot wake up and go on writing the record.
Each rank has a socket of its own to it; what the launcher says last counts.
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import asdict, dataclass
from typing import Any

from hadpsgd.decentralized.network.words import to_read

ORDERS = "HADPSGD_ORDERS"
"""Descriptor of the socket that leads to who started this process (`ranks` has the other side)."""
LONGEST = 2**12
"""Bytes of an order, at most."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a member is from now on."""

    rank: int
    """The first one's, of who takes its place; of the others their own."""
    life: int
    """Of the super-learner."""
    log: str = ""
    """Where who takes the first one's place writes from now on."""


def pair() -> tuple[socket.socket, socket.socket]:
    """The launcher's end, and the one that a rank inherits; an order is one message."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    return ours, theirs


def give(link: socket.socket, order: Order) -> None:
    """Say it; a process that has ended hears nothing."""
    try:
        link.send(json.dumps(asdict(order)).encode())
    except OSError:
        return


class Orders:
    """A rank's side.

    Args:
        link: to the launcher; None: nobody gives orders.
    """

    def __init__(self, link: socket.socket | None) -> None:
        self.link = link

    @property
    def waiting(self) -> bool:
        """Whether there is one that was not looked at, or the launcher has ended."""
        return self.link is not None and bool(to_read([self.link]))

    def last(self) -> Order | None:
        """The last one since the last look; None: there is none."""
        found: dict[str, Any] | None = None
        while self.link is not None:
            try:
                told = self.link.recv(LONGEST, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            if not told:  # the launcher has ended
                self.link = None
                break
            found = json.loads(told)
        return Order(**found) if found is not None else None


_orders: Orders | None = None


def orders() -> Orders:
    """This process's."""
    global _orders
    if _orders is None:
        descriptor = os.environ.pop(ORDERS, "")
        _orders = Orders(socket.socket(fileno=int(descriptor)) if descriptor else None)
    return _orders
