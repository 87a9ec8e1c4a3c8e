"""Transport among learners of one process, in virtual time.

Weights are handed over by reference; what takes time is the links' business (`speeds.Links`).
A learner may die: what it had under way is lost, and its partners see their connections end.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from hadpsgd.decentralized.core.note import Note
from hadpsgd.decentralized.network.speeds import Links, LinkTimes
from hadpsgd.decentralized.network.transport import Arrival, UnsettledError
from hadpsgd.decentralized.network.wire import Header
from hadpsgd.decentralized.simulated.clock import VirtualClock

LOOK_SECONDS = 0.25
"""How often a silent exchange looks whether it was interrupted (as `tcp.LOOK_UP_SECONDS`)."""


def _never() -> bool:
    return False


class Network:
    """All learners' transports, their links and the buffers under way.

    Args:
        clock: the time.
        times: of the links.
        like: a tensor of the type, device and length of a snapshot.
        model_bytes: bytes of a snapshot on the wire; those of `like` if None.
    """

    def __init__(
        self, clock: VirtualClock, times: LinkTimes, like: Tensor, model_bytes: float | None = None
    ) -> None:
        self.clock = clock
        self.links = Links(times)
        self.model_bytes = float(like.nbytes) if model_bytes is None else model_bytes
        self.members: dict[int, SimulatedTransport] = {}
        self.gone: set[int] = set()
        """Who died, or came to its end, and has not come back."""
        self._sent_before = 0
        self._like = like
        self._spare: list[Tensor] = []
        self._holders: dict[int, int] = {}

    def transport(self, rank: int) -> SimulatedTransport:
        """The transport of learner `rank`."""
        if rank not in self.members:
            self.members[rank] = SimulatedTransport(self, rank)
        return self.members[rank]

    @property
    def bytes_sent(self) -> int:
        """By all, those that are gone included."""
        return self._sent_before + sum(member.bytes_sent for member in self.members.values())

    def leave(self, rank: int, *, dies: bool) -> None:
        """A learner's connections end; what it sent still arrives, unless it dies."""
        transport = self.members.pop(rank)
        self._sent_before += transport.bytes_sent
        transport.dead = dies
        self.gone.add(rank)
        for other in self.members.values():
            other.wake()

    def come_back(self, rank: int) -> None:
        """A learner is there again, with a transport that knows of nothing."""
        self.gone.discard(rank)
        self.transport(rank).past = set(self.gone)

    def fence(self) -> None:
        """On a GPU, tasks have streams of their own: what was asked for so far is done."""
        if self._like.is_cuda:
            torch.cuda.synchronize(self._like.device)

    def borrow(self) -> Tensor:
        """A buffer held once."""
        buffer = self._spare.pop() if self._spare else torch.empty_like(self._like)
        self._holders[id(buffer)] = 1
        return buffer

    def hold(self, buffer: Tensor) -> None:
        """One holder more."""
        self._holders[id(buffer)] = self._holders.get(id(buffer), 0) + 1

    def let_go(self, buffer: Tensor) -> None:
        """One holder less; the last one returns the buffer."""
        self._holders[id(buffer)] -= 1
        if not self._holders[id(buffer)]:
            del self._holders[id(buffer)]
            if (buffer.dtype, buffer.shape) == (self._like.dtype, self._like.shape):
                self._spare.append(buffer)


class SimulatedTransport:
    """See `Transport`: the exchanges of one learner, by one task."""

    def __init__(self, network: Network, rank: int) -> None:
        self.network = network
        self.rank = rank
        self.bytes_sent = self.bytes_received = 0
        self._changed = network.clock.condition(f"messages for learner {rank}")
        self._outgoing: Tensor | None = None
        self._held: list[Tensor] = []
        self._arrived: defaultdict[int, dict[int, Arrival]] = defaultdict(dict)
        self._acknowledged: defaultdict[int, set[int]] = defaultdict(set)
        self._woken = False
        self._inbox: list[Header] = []
        self._early: list[tuple[int, Callable[[], None]]] = []
        self._round = -1
        self.epoch = 0
        self.dead = False
        self.past: set[int] = set()
        """Who was gone when this membership began."""
        self.timeout = math.inf
        self.interrupted: Callable[[], bool] = _never
        """Asked now and then during a silent exchange; ends it."""
        self.meanwhile: Callable[[], None] = lambda: None
        """Called during an exchange when messages have come."""

    def outgoing(self) -> Tensor:
        """The buffer of the next snapshot; it stays as it is as long as a partner reads it."""
        if self._outgoing is None:
            self._outgoing = self.network.borrow()
        return self._outgoing

    def invited(self, round_: int) -> bool:
        """Whether a snapshot of that round or of a later one has arrived."""
        return any(number >= round_ for number in self._arrived)

    def exchange(
        self,
        round_: int,
        receives: Sequence[int],
        sends: Sequence[int],
        note: Note,
        *,
        payload: Tensor | None = None,
        into: Sequence[Tensor] | None = None,
    ) -> dict[int, Arrival]:
        """One round with all partners; the links carry one message after the other.

        Raises:
            UnsettledError: it was interrupted, or a partner is gone.
        """
        self._let_go()
        snapshot = self._to_send(payload)
        for j in sends:
            self._send(j, round_, snapshot, note)
        arrived, acknowledged = self._arrived[round_], self._acknowledged[round_]
        self._round = round_
        for j in arrived:
            self._say_received(j, round_)
        deadline = self.network.clock.now() + self.timeout

        def unsettled() -> set[int]:
            return (set(receives) - arrived.keys()) | (set(sends) - acknowledged)

        def lost() -> set[int]:
            return unsettled() & self.network.gone

        pause = None if self.interrupted is _never else LOOK_SECONDS
        ended = None
        while unsettled() and ended is None:
            late = self.network.clock.now() > deadline
            if lost() or late or self.interrupted():
                ended = unsettled() if late else lost()
                break
            self._changed.wait_for(lambda: not unsettled() or bool(lost() or self._inbox), pause)
            self.meanwhile()
        self._round = -1
        del self._arrived[round_], self._acknowledged[round_]
        self.bytes_received += int(self.network.model_bytes) * len(arrived)
        self._held = [snapshot, *(arrival.weights for arrival in arrived.values())]
        if ended is not None:
            raise UnsettledError(rank=self.rank, round_=round_, arrived=arrived, lost=ended)
        for j, buffer in zip(receives, into or (), strict=False):
            buffer.copy_(arrived[j].weights)
        return {j: arrived[j] for j in receives}

    def _to_send(self, payload: Tensor | None) -> Tensor:
        if payload is not None:
            copy = payload.clone()  # of weights as they are, though others may be rounded
            self.network.hold(copy)
            return copy
        snapshot, self._outgoing = self.outgoing(), None
        return snapshot

    def _send(self, j: int, round_: int, snapshot: Tensor, note: Note) -> None:
        """To whoever is rank `j` now; it takes the links' time."""
        network = self.network
        if j in network.gone:
            return
        network.hold(snapshot)
        now = network.clock.now()
        moment = network.links.arrival(
            now=now, source=self.rank, target=j, size=network.model_bytes
        )
        target = network.transport(j)
        network.clock.after(
            moment - now, partial(target._receive, self, self.epoch, round_, snapshot, note)
        )
        self.bytes_sent += int(network.model_bytes)

    def _let_go(self) -> None:
        self.network.fence()
        for buffer in self._held:
            self.network.let_go(buffer)
        self._held = []

    def agree(self, round_: int, others: Sequence[int], note: Note) -> list[Note]:
        """A super-learner is one node here: nobody to agree with."""
        raise NotImplementedError

    def wait(self, seconds: float) -> None:
        """Until a message arrives, `wake` is called or time is up."""
        self._changed.wait_for(lambda: self._woken, seconds)
        self._woken = False

    def wake(self) -> None:
        """End `wait`."""
        self._woken = True
        self._changed.notify_all()

    def close(self) -> None:
        """The network does that: see `Network.leave`."""

    def reset(self, epoch: int) -> None:
        """Go over to the membership of that number: nothing of the one before is left."""
        for arrived in self._arrived.values():
            for arrival in arrived.values():
                self.network.let_go(arrival.weights)
        self._arrived.clear()
        self._acknowledged.clear()
        self.epoch = epoch
        self.past = set(self.network.gone)
        early, self._early = self._early, []
        for sent_in, again in early:
            if sent_in >= epoch:
                again()

    def reach(self, j: int) -> None:
        """All are connected.

        Raises:
            ConnectionRefusedError: that one is gone.
        """
        if not self.lives(j):
            raise ConnectionRefusedError(f"learner {j} is gone")

    def tell(self, j: int, message: Header) -> None:
        """Send a short message, which takes the links' latency and waits for what lies there."""
        if self.lives(j):
            network, partner = self.network, self.network.transport(j)
            now = network.clock.now()
            moment = network.links.told(now=now, source=self.rank, target=j)
            network.clock.after(moment - now, partial(partner._hear, message, self))

    def heard(self) -> list[Header]:
        """Short messages that came, in the order of their coming."""
        found, self._inbox = self._inbox, []
        return found

    @property
    def said(self) -> bool:
        """Nothing waits to be sent."""
        return True

    def ended(self) -> set[int]:
        """Who died, or came to its end, in this membership."""
        return self.network.gone - self.past

    def lives(self, j: int) -> bool:
        """Whether it is there."""
        return j not in self.network.gone

    def drop(self, j: int) -> None:
        """It is known to be gone."""
        self.past.add(j)

    def _hear(self, message: Header, sender: SimulatedTransport | None = None) -> None:
        if not (self.dead or (sender is not None and sender.dead)):
            self._inbox.append(message)
            self.wake()

    def _receive(
        self, sender: SimulatedTransport, epoch: int, round_: int, snapshot: Tensor, note: Note
    ) -> None:
        if sender.dead or self.dead or epoch < self.epoch:
            self.network.let_go(snapshot)
            return
        if epoch > self.epoch:
            again = partial(self._receive, sender, epoch, round_, snapshot, note)
            self._early.append((epoch, again))
            return
        self._arrived[round_][sender.rank] = Arrival(snapshot, note)
        if round_ == self._round:
            self._say_received(sender.rank, round_)
        self.wake()

    def _say_received(self, j: int, round_: int) -> None:
        """In its round only: what comes after an exchange has broken off does not count."""
        if self.lives(j):
            latency, sender = self.network.links.times.latency, self.network.transport(j)
            acknowledge = partial(sender._acknowledge, self, self.epoch, round_)
            self.network.clock.after(latency, acknowledge)

    def _acknowledge(self, partner: SimulatedTransport, epoch: int, round_: int) -> None:
        if not partner.dead and epoch == self.epoch:
            self._acknowledged[round_].add(partner.rank)
            self._changed.notify_all()
