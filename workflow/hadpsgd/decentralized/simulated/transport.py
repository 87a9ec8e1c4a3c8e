"""Transport and collectives among learners of one process, in virtual time.

Weights are handed over by reference; what takes time is the links' business (`speeds.Links`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hadpsgd.decentralized.core.note import Note
from hadpsgd.decentralized.network.speeds import Links, LinkTimes
from hadpsgd.decentralized.network.transport import Arrival
from hadpsgd.decentralized.network.wire import Header
from hadpsgd.decentralized.simulated.clock import VirtualClock


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
        self._like = like
        self._spare: list[Tensor] = []
        self._holders: dict[int, int] = {}

    def transport(self, rank: int) -> SimulatedTransport:
        """The transport of learner `rank`."""
        return self.members.setdefault(rank, SimulatedTransport(self, rank))

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
        self._holders[id(buffer)] += 1

    def let_go(self, buffer: Tensor) -> None:
        """One holder less; the last one returns the buffer."""
        self._holders[id(buffer)] -= 1
        if not self._holders[id(buffer)]:
            del self._holders[id(buffer)]
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
        self.timeout = math.inf
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
        self, round_: int, receives: Sequence[int], sends: Sequence[int], note: Note
    ) -> dict[int, Arrival]:
        """One round with all partners; the links carry one message after the other."""
        network, clock = self.network, self.network.clock
        network.fence()
        for buffer in self._held:
            network.let_go(buffer)
        snapshot, self._outgoing = self.outgoing(), None
        for j in sends:
            network.hold(snapshot)
            moment = network.links.arrival(
                now=clock.now(), source=self.rank, target=j, size=network.model_bytes
            )
            deliver = partial(network.transport(j)._receive, self.rank, round_, snapshot, note)
            clock.after(moment - clock.now(), deliver)
            self.bytes_sent += int(network.model_bytes)
        arrived, acknowledged = self._arrived[round_], self._acknowledged[round_]

        def settled() -> bool:
            return arrived.keys() >= set(receives) and acknowledged >= set(sends)

        while not settled():
            self._changed.wait_for(lambda: settled() or bool(self._inbox))
            self.meanwhile()
        del self._arrived[round_], self._acknowledged[round_]
        self.bytes_received += int(network.model_bytes) * len(arrived)
        self._held = [snapshot, *(arrival.weights for arrival in arrived.values())]
        return {j: arrived[j] for j in receives}

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
        """Nothing to close."""

    def reach(self, j: int) -> None:
        """All are connected."""

    def tell(self, j: int, message: Header) -> None:
        """Send a short message, which takes the links' latency."""
        partner, latency = self.network.transport(j), self.network.links.times.latency
        self.network.clock.after(latency, partial(partner._hear, message))

    def heard(self) -> list[Header]:
        """Short messages that came, in the order of their coming."""
        found, self._inbox = self._inbox, []
        return found

    @property
    def said(self) -> bool:
        """Nothing waits to be sent."""
        return True

    def ended(self) -> set[int]:
        """Nobody dies."""
        return set()

    def lives(self, j: int) -> bool:  # noqa: ARG002
        """Nobody dies."""
        return True

    def drop(self, j: int) -> None:
        """Nobody dies."""

    def _hear(self, message: Header) -> None:
        self._inbox.append(message)
        self.wake()

    def _receive(self, sender: int, round_: int, snapshot: Tensor, note: Note) -> None:
        self._arrived[round_][sender] = Arrival(snapshot, note)
        partner = self.network.transport(sender)
        latency = self.network.links.times.latency
        self.network.clock.after(latency, partial(partner._acknowledge, self.rank, round_))
        self.wake()

    def _acknowledge(self, partner: int, round_: int) -> None:
        self._acknowledged[round_].add(partner)
        self._changed.notify_all()


@dataclass
class _Meeting:
    came: dict[int, Any] = field(default_factory=dict)
    over: bool = False
    result: Any = None
    left: int = 0


class Assembly:
    """Allreduces among learners of one process: nobody leaves before all have come.

    Args:
        network: its links say how long a ring allreduce of a model takes.
        members: who takes part.
    """

    def __init__(self, network: Network, members: Sequence[int]) -> None:
        self.network = network
        self.members = tuple(members)
        self.size = len(self.members)
        self.bytes_sent = 0.0
        """By each member."""
        self._changed = network.clock.condition("the other learners of an allreduce")
        self._meetings: defaultdict[int, _Meeting] = defaultdict(_Meeting)
        self._visits: defaultdict[int, int] = defaultdict(int)

    def meet(self, member: int, brings: Any, combine: Callable[[list[Any]], Any]) -> Any:
        """Meeting number n of `member`: combine(what all brought, in the order of members).

        It is combined once, at the end, and given to all.
        """
        number = self._visits[member]
        self._visits[member] += 1
        meeting = self._meetings[number]
        meeting.came[member] = brings
        if len(meeting.came) == self.size:
            network = self.network
            seconds = network.links.times.allreduce(self.members, network.model_bytes)
            network.clock.after(seconds, partial(self._end, meeting, combine))
        self._changed.wait_for(lambda: meeting.over)
        meeting.left += 1
        if meeting.left == self.size:
            del self._meetings[number]
        return meeting.result

    def _end(self, meeting: _Meeting, combine: Callable[[list[Any]], Any]) -> None:
        self.network.fence()
        meeting.result = combine([meeting.came[member] for member in self.members])
        self.network.fence()
        meeting.over = True
        self.bytes_sent += 2 * self.network.model_bytes * (self.size - 1) / self.size
        self._changed.notify_all()


class SimulatedAveraging:
    """Stands in for `collectives.Averaging`: one member's buffer becomes the mean of all."""

    def __init__(self, assembly: Assembly, member: int, buffer: Tensor) -> None:
        self._assembly = assembly
        self._member = member
        self._buffer = buffer

    def run(self) -> None:
        """The mean, summed in the order of the members, so that all get the same bits."""
        self._buffer.copy_(self._assembly.meet(self._member, self._buffer, _mean))


def _mean(buffers: list[Tensor]) -> Tensor:
    total = buffers[0].clone()
    for buffer in buffers[1:]:
        total += buffer
    return total.div_(len(buffers))
