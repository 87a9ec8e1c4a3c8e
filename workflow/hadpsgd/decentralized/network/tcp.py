"""Exchange of snapshots over TCP: one thread, any number of partners at once, nothing polled.

A snapshot is read from the socket only in its round, into a buffer that is kept: whoever is early
waits in the kernel's buffers. Where two are on one host, only the place of a snapshot is sent: it
lies in memory that both see (`shelf`).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from hadpsgd.decentralized.core.note import Note
from hadpsgd.decentralized.network.connections import Address, Connections
from hadpsgd.decentralized.network.link import Link
from hadpsgd.decentralized.network.round import Round
from hadpsgd.decentralized.network.shelf import shelf_of
from hadpsgd.decentralized.network.transport import Arrival, UnsettledError
from hadpsgd.decentralized.network.wire import TALK, Header, Kind

LOOK_UP_SECONDS = 0.25
"""How often a silent exchange looks whether it was interrupted."""
DELAY_SECONDS = 0.002
"""How exactly injected delays are kept."""


class TcpTransport:
    """See `Transport`.

    Args:
        rank: this rank.
        like: a tensor of the type and length of a snapshot, on the CPU.
        publish: makes this rank's address known.
        lookup: a rank's address, None if not known yet.
        host: the address to listen at.
        timeout: seconds of silence in an exchange until its partners are given up.
        pin: keep snapshots in pinned memory, which others cannot see.
        room: bytes of what is sent besides snapshots that others on the host can see.
        delay: (partner, bytes) -> seconds that a message is made to need.
    """

    def __init__(
        self,
        rank: int,
        like: Tensor,
        *,
        publish: Callable[[Address], None],
        lookup: Callable[[int], Address | None],
        host: str = "127.0.0.1",
        timeout: float = 600.0,
        pin: bool = False,
        room: int = 0,
        delay: Callable[[int, int], float] | None = None,
    ) -> None:
        self.rank = rank
        self.timeout = timeout
        self.bytes_sent = self.bytes_received = 0
        self.interrupted: Callable[[], bool] = lambda: False
        """Asked now and then during a silent exchange; ends it."""
        self._delay = delay
        self.meanwhile: Callable[[], None] = lambda: None
        """Called during an exchange whenever something may have come."""
        self._unsaid: defaultdict[int, list[Header]] = defaultdict(list)
        self._shelf = None if pin else shelf_of(like, room=room)
        self._connections = Connections(rank, publish, lookup, host, self._shelf)
        self._make: Callable[[], Tensor] = lambda: torch.empty_like(like, pin_memory=pin)
        self._snapshot = self._make() if self._shelf is None else self._shelf.snapshot
        self._incoming: list[Tensor] = []
        self.wake = self._connections.wake
        self.wait = self._connections.events
        self.reset = self._connections.reset
        self.reach = self._connections.to
        self.ended = self._connections.ended
        self.lives = self._connections.lives

    def close(self) -> None:
        """Let go of all connections."""
        self._connections.close()
        if self._shelf is not None:
            self._shelf.close()

    def outgoing(self) -> Tensor:
        """The buffer of the next snapshot."""
        return self._snapshot

    def invited(self, round_: int) -> bool:
        """Whether somebody that has begun that round or a later one is at the door."""
        return any(
            link.header is not None
            and link.header.kind in (Kind.WEIGHTS, Kind.PLACED, Kind.BEGIN)
            and link.header.round >= round_
            for link in list(self._connections.links.values())
        )

    def exchange(
        self,
        round_: int,
        receives: Sequence[int],
        sends: Sequence[int],
        note: Note,
        *,
        payload: Tensor | Mapping[int, Tensor] | None = None,
        into: Sequence[Tensor] | None = None,
    ) -> dict[int, Arrival]:
        """One round with all partners at once.

        `payload` is sent (to each partner its own, if it is a mapping) and `into` filled (in the
        order of `receives`; contiguous, on the CPU) in place of the transport's own buffers.
        """
        if not isinstance(payload, Mapping):
            payload = dict.fromkeys(sends, self._snapshot if payload is None else payload)
        current = Round(
            round_,
            receives,
            sends,
            payload=payload,
            buffers=self._buffers(len(receives)) if into is None else into,
        )
        try:
            self._settle(current, note)
        finally:
            if self._shelf is not None:
                self._shelf.clear()
        # in the order asked for, so that sums over them are always the same
        return {j: current.arrived[j] for j in receives}

    def _settle(self, current: Round, note: Note) -> None:
        """Until all partners have what they are to have."""
        deadline = time.monotonic() + self.timeout
        while True:
            lost = {j for j in sorted(current.open) if not self._proceed(current, j, note)}
            if not current.open:
                return
            if time.monotonic() > deadline:
                lost = set(current.open)
            if lost or self.interrupted():
                raise UnsettledError(
                    rank=self.rank, round_=current.number, arrived=current.arrived, lost=lost
                )
            self._connections.events(LOOK_UP_SECONDS if self._delay is None else DELAY_SECONDS)
            self.meanwhile()

    def tell(self, j: int, message: Header) -> None:
        """Send a short message, once there is a connection."""
        self._unsaid[j].append(message)
        self._say(j)

    def heard(self) -> list[Header]:
        """Short messages that came; what belongs to a round stays."""
        for j in list(self._unsaid):
            self._say(j)
        found: list[Header] = []
        for link in list(self._connections.links.values()):
            while link.read_header() and link.header is not None and link.header.kind in TALK:
                found.append(link.header)
                link.header = None
        return found

    @property
    def said(self) -> bool:
        """Whether all that was told has left this process."""
        links = self._connections.links
        return not self._unsaid and not any(
            link.outbox and not link.ended for link in links.values()
        )

    def drop(self, j: int) -> None:
        """Let go of the connection to a rank, and of what was still to be said to it."""
        self._unsaid.pop(j, None)
        self._connections.drop(j)

    def _say(self, j: int) -> None:
        link = self._connections.links.get(j)
        if link is not None:
            messages = self._unsaid.pop(j)
            link.outbox += [memoryview(message.pack()) for message in messages]
            link.send()

    def agree(self, round_: int, others: Sequence[int], note: Note) -> list[Note]:
        """Notes to and from other members of the super-learner, at the beginning of a round."""
        waiting, unsent = set(others), set(others)
        heard: dict[int, Note] = {}
        deadline = time.monotonic() + self.timeout
        while True:
            lost = {j for j in sorted(waiting) if not self._greet(j, round_, note, unsent, heard)}
            waiting = unsent | (set(others) - heard.keys())
            if not waiting:
                return [heard[j] for j in others]
            if time.monotonic() > deadline:
                lost = waiting
            if lost or self.interrupted():
                raise UnsettledError(rank=self.rank, round_=round_, arrived={}, lost=lost)
            self._connections.events(LOOK_UP_SECONDS)

    def _greet(
        self, j: int, round_: int, note: Note, unsent: set[int], heard: dict[int, Note]
    ) -> bool:
        """Tell `j`, hear it, as far as can be done now; False if it is lost."""
        try:
            link = self._connections.to(j)
        except OSError:
            return False
        if link is None:
            return True
        if j in unsent:
            unsent.discard(j)
            link.outbox.append(
                memoryview(
                    Header(kind=Kind.BEGIN, sender=self.rank, round=round_, note=note).pack()
                )
            )
        link.send()
        if j not in heard and link.read_header():
            assert link.header is not None and link.header.round == round_
            heard[j], link.header = link.header.note, None
        return not link.ended or j in heard

    def _proceed(self, current: Round, j: int, note: Note) -> bool:
        """Do with partner `j` what can be done now; False if it is lost."""
        if self._delay is not None:
            size = current.nbytes * (1 + current.partners.index(j))
            if time.monotonic() < current.begin + self._delay(j, size):
                return True
        try:
            link = self._connections.to(j)
        except OSError:
            return False
        if link is None:
            return True
        if j in current.unsent:
            current.unsent.discard(j)
            self._send(current, j, link, note)
        self._take(current, j, link)
        link.send()
        current.flushed(j, done=not link.outbox)
        return not (link.ended and j in current.open)

    def _send(self, current: Round, j: int, link: Link, note: Note) -> None:
        """A snapshot, or where it lies if the partner can see it."""
        payload = current.payload[j]
        shelf = self._shelf if link.seen else None
        at = None if shelf is None else shelf.place(payload)
        header = Header(
            kind=Kind.WEIGHTS if at is None else Kind.PLACED,
            sender=self.rank,
            round=current.number,
            nbytes=payload.nbytes,
            at=at or 0,
            turn=0 if shelf is None else shelf.turn,
            note=note,
        )
        link.outbox.append(memoryview(header.pack()))
        if at is None:
            link.outbox.append(_bytes(payload))
        self.bytes_sent += payload.nbytes

    def _take(self, current: Round, j: int, link: Link) -> None:
        """Deal with what came from partner `j` as far as this round goes."""
        while (
            link.header is not None
            and link.header.round == current.number
            and link.header.kind not in TALK
        ):
            if link.header.kind is Kind.RECEIVED:
                current.acknowledged.add(j)
            else:
                if not self._receive(link, _bytes(current.buffers[j])):
                    return
                current.arrived[j] = Arrival(current.buffers[j], link.header.note)
                self.bytes_received += link.header.nbytes
                received = Header(kind=Kind.RECEIVED, sender=self.rank, round=current.number)
                link.outbox.append(memoryview(received.pack()))
            link.header = link.target = None
            link.read_header()

    @staticmethod
    def _receive(link: Link, into: memoryview) -> bool:
        """Whether the weights of the link's header are there."""
        assert link.header is not None
        if link.header.kind is Kind.PLACED:
            return link.take_weights(into)
        if link.target is None:
            link.target = into
        return link.read_weights()

    def _buffers(self, count: int) -> list[Tensor]:
        while len(self._incoming) < count:
            self._incoming.append(self._make())
        return self._incoming


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.numpy().data.cast("B")
