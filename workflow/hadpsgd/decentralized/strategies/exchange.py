"""One round of mixing at one node: from its snapshot to what is to be added to its weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor
from typing_extensions import override

from hadpsgd.decentralized.core.buffers import ALIGN
from hadpsgd.decentralized.core.coordination import Coordination
from hadpsgd.decentralized.core.events import Mix
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.note import Note
from hadpsgd.decentralized.core.observation import Observer
from hadpsgd.decentralized.core.place import Place
from hadpsgd.decentralized.core.sums import combine, mean_of
from hadpsgd.decentralized.network.collectives import Group
from hadpsgd.decentralized.network.rounding import Rounding, Sender, message_like
from hadpsgd.decentralized.network.tcp import TcpTransport
from hadpsgd.decentralized.network.transport import Arrival, Transport
from hadpsgd.decentralized.topology.mixing import MixingSchedule, Takes


class Exchange(ABC):
    """A round, in three parts: `snapshot`, `run` (blocks, beside the gradient), `apply`."""

    groups: Sequence[Group] = ()
    """Process groups that it uses."""

    def __init__(self) -> None:
        self.observer = Observer()

    @property
    def peer_bytes(self) -> int:
        """Bytes of weights sent to partners so far."""
        return 0

    @property
    def living(self) -> tuple[int, Mapping[int, int]] | None:
        """As of the engine; None where no newcomers come."""
        return None

    @property
    def reduced(self) -> Collection[int]:
        """Super-learners of which the first member goes on alone."""
        return ()

    @abstractmethod
    def snapshot(self) -> None:
        """Begin to take the learner's weights of the moment; what is long is left to `run`."""

    @abstractmethod
    def run(self, round_: int) -> None:
        """Exchange them."""

    @abstractmethod
    def apply(self) -> None:
        """Mix what came into the learner's weights."""

    def forget(self) -> bool:
        """At a pause: forget what was not sent for good; whether that is to be recorded."""
        return False

    def between_rounds(self) -> None:  # noqa: B027
        """Called now and then while no round is under way."""

    def invited(self, round_: int) -> bool:  # noqa: ARG002
        """Whether a partner waits for that round."""
        return False


class NoExchange(Exchange):
    """For strategies that do not mix."""

    @override
    def snapshot(self) -> None:
        """Never called."""
        raise NotImplementedError

    @override
    def run(self, round_: int) -> None:
        """Never called."""
        raise NotImplementedError

    @override
    def apply(self) -> None:
        """Never called."""
        raise NotImplementedError


class PeerExchange(Exchange):
    """Snapshots to and from the partners that the schedule names.

    A member of a super-learner exchanges its shard with its counterparts in the others, and the
    members then gather the shards: a super-learner sends each weight once.
    """

    def __init__(
        self,
        learner: Learner,
        schedule: MixingSchedule,
        transport: Transport,
        coordination: Coordination,
        place: Place,
        members: Group,
        rounding: Rounding | None = None,
    ) -> None:
        super().__init__()
        self.learner = learner
        self.schedule = schedule
        self.transport = transport
        self.coordination = coordination
        self.place = place
        self.members = members
        self.groups = (members,)
        shard = learner.weights.numel() // place.size
        self.shard = slice(place.member * shard, (place.member + 1) * shard)
        self.part = self.shard
        self.own = torch.empty_like(learner.weights[self.part])
        self.taken = torch.empty_like(self.own)
        self.delta = torch.empty_like(learner.weights)
        self.sender = None if rounding is None else Sender(rounding, self.own)
        self._message = message_like(self.own, rounding) if self.own.is_cuda else self.own
        """On a GPU: of the last partner, or to all, on its way from or to the host's memory."""
        self.mix = Mix(round=0, own=0, takes=())
        self.before_sending: Callable[[], object] = lambda: None
        """Called before others can see a snapshot."""

    @property
    @override
    def peer_bytes(self) -> int:
        """Counted by the transport."""
        return self.transport.bytes_sent

    @property
    def colleagues(self) -> Sequence[int]:
        """The other members of the super-learner."""
        return self.place.others

    def snapshot(self) -> None:
        """The own shard."""
        if not (self.own.is_cuda or self.sender):
            self.own = self._outgoing()
        version, self._copying = self.learner.begin_snapshot(self.own, self.part)
        self.note = self.coordination.note(version=version, steps=self.learner.steps)

    def _ready(self) -> None:
        """The snapshot is whole, and may be sent."""
        self._copying.finish()
        message, outgoing = self.own, self._outgoing()
        if self.sender is not None:
            message = self._message if self.own.is_cuda else outgoing
            self.sender.send(self.own, message)
        if self.own.is_cuda:
            outgoing.copy_(message)  # to pinned memory, on this thread's stream
        self.before_sending()

    def _outgoing(self) -> Tensor:
        """The buffer of what is sent."""
        return self.transport.outgoing()

    def run(self, round_: int) -> None:
        """Exchange; make delta of what came, gathered from all shards."""
        self._ready()
        self._take(self._swap(round_), round_)

    def _swap(self, round_: int) -> dict[int, Arrival]:
        """Send the snapshot to the partners of a round; theirs, by node."""
        current = self.schedule.round(round_)
        receives = {self.place.counterpart(j): j for j in current.receives(self.place.node)}
        sends = [self.place.counterpart(j) for j in current.sends(self.place.node)]
        arrivals = self.transport.exchange(round_, list(receives), sends, self.note)
        return {receives[rank]: arrival for rank, arrival in arrivals.items()}

    def _take(self, came: Mapping[int, Arrival], round_: int) -> None:
        """Make delta of what came from other nodes."""
        takes = self._shares(round_)
        self.mix = Mix(
            round=round_,
            own=self.note.version,
            takes=tuple((j, takes[j], arrival.note.version) for j, arrival in came.items()),
        )
        if came:
            self._combine(came)
            self._gather()
        notes = {j: arrival.note for j, arrival in came.items()}
        self.observer.exchanged(self.note, notes)
        for note in notes.values():
            self.coordination.heard(note, round_ + 1)

    def _shares(self, round_: int) -> Takes:
        """Whose weights are taken in a round, and how much of each."""
        return self.schedule.round(round_).partners(self.place.node)

    def agree(self, round_: int, note: Note) -> list[Note]:
        """Tell the other members of the super-learner that a round begins; what they tell."""
        notes = self.transport.agree(round_, self.colleagues, note)
        for other in notes:
            self.coordination.heard(other, round_)
        return notes

    def apply(self) -> None:
        """Mix."""
        if self.mix.takes:
            self.observer.mixed(self.mix, self.delta, self.learner.weights)
            self.delta = self.learner.mix(self.mix, self.delta)
            if self.sender is not None:
                self.sender.count()
        else:
            self.learner.sit_out(self.mix)

    def invited(self, round_: int) -> bool:
        """Whether a partner's snapshot is at the door."""
        return self.transport.invited(round_)

    def _combine(self, came: Mapping[int, Arrival]) -> None:
        others = ((self._weights_of(came[j]), share) for j, share, _ in self.mix.takes)
        total = sum(share for _, share, _ in self.mix.takes)
        combine(self.own, total, others, self.delta[self.part])

    def _gather(self) -> None:
        """The other shards of delta, from the other members."""
        self.members.gather(self.delta, self.delta[self.part])

    def _weights_of(self, arrival: Arrival) -> Tensor:
        """On the learner's device; valid until the next call."""
        came = arrival.weights
        if self.sender is None:
            return self.taken.copy_(came) if self.own.is_cuda else came
        if self.own.is_cuda:
            came = self._message.copy_(came)
        self.sender.rounding.decode(came, self.taken)
        return self.taken

    @override
    def forget(self) -> bool:
        """What the sender owes; whether there is one."""
        if self.sender is None:
            return False
        self.sender.forget()
        return True


class PeerAverageExchange(PeerExchange):
    """The mean of all super-learners' weights: an allreduce of each member and its counterparts.

    Each of n counterparts gets its part of their shard from all, sums it in the order of the nodes
    and hands the mean out: together a super-learner sends 2 (n-1)/n models, and all get the same
    bits.
    """

    transport: TcpTransport

    @cached_property
    def _rows(self) -> Tensor:
        """[nodes, shard / nodes]: everybody's values of the own part."""
        return torch.empty_like(self.transport.outgoing()).view(self.place.nodes, -1)

    @cached_property
    def _means(self) -> Tensor:
        """[nodes, shard / nodes]: all parts."""
        return torch.empty_like(self._rows)

    @override
    def run(self, round_: int) -> None:
        """Bring the own part together; `_combine` does the rest."""
        self._ready()
        own, others = self.transport.outgoing().view(self._rows.shape), self._others()
        self._rows[self.place.node].copy_(own[self.place.node])
        came = self.transport.exchange(
            2 * round_,
            list(others),
            list(others),
            self.note,
            payload={rank: own[j] for rank, j in others.items()},
            into=[self._rows[j] for j in others.values()],
        )
        self._take({others[rank]: arrival for rank, arrival in came.items()}, round_)

    @override
    def apply(self) -> None:
        """The average takes the place of the weights."""
        self.observer.averaged(self.delta, self.learner.weights)
        self.learner.replace(self.mix, self.delta)

    @override
    def _combine(self, came: Mapping[int, Arrival]) -> None:
        """The mean of the own part to all others, theirs from them."""
        others, own = self._others(), self._means[self.place.node]
        mean_of(self._rows, own)
        self.transport.exchange(
            2 * self.mix.round + 1,
            list(others),
            list(others),
            self.note,
            payload=own,
            into=[self._means[j] for j in others.values()],
        )
        self.delta[self.part].copy_(self._means.view(-1))

    def _others(self) -> dict[int, int]:
        """Rank of the counterpart -> node."""
        nodes = range(self.place.nodes)
        return {self.place.counterpart(j): j for j in nodes if j != self.place.node}


class InPlaceMean(Protocol):
    """`run` puts the mean over all learners into a buffer; blocks."""

    def run(self) -> None: ...


class AverageExchange(Exchange):
    """The mean of all learners' weights (super-learners of one), by an allreduce.

    Args:
        learner: whose weights.
        coordination: pauses and the end travel with the weights.
        place: of the learner.
        averaging: makes the allreduce of a buffer.
        groups: process groups that it uses.
    """

    def __init__(
        self,
        learner: Learner,
        coordination: Coordination,
        place: Place,
        averaging: Callable[[Tensor], InPlaceMean],
        groups: Sequence[Group] = (),
    ) -> None:
        super().__init__()
        self.learner = learner
        self.coordination = coordination
        self.place = place
        unit = place.world * ALIGN
        buffer = learner.weights.new_zeros(unit + learner.weights.numel())
        self.control, self.average = buffer[:unit], buffer[unit:]
        self.groups = groups
        self._averaging = averaging(buffer)
        self.mix = Mix(round=0, own=0, takes=())

    def snapshot(self) -> None:
        """All weights, and whether this learner wants all to pause or to end after the round."""
        following = self.learner.rounds + 1
        self.control[0] = float(self.coordination.pauses(following))
        self.control[1] = float(self.coordination.stops(following))
        # last: it orders the streams
        self.version, self._copying = self.learner.begin_snapshot(self.average)

    def run(self, round_: int) -> None:
        """Allreduce; all learners are at the same version."""
        self._copying.finish()
        self._averaging.run()
        others = (j for j in range(self.place.nodes) if j != self.place.node)
        takes = tuple((j, 1 / self.place.nodes, self.version) for j in others)
        self.mix = Mix(round=round_, own=self.version, takes=takes)

    def apply(self) -> None:
        """The average takes the place of the weights."""
        self.observer.averaged(self.average, self.learner.weights)
        self.learner.replace(self.mix, self.average)
        following = self.mix.round + 1
        if self.control[0] > 0:
            self.coordination.request_pause(following, now=True)
        if self.control[1] > 0:
            self.coordination.request_stop(following, now=True)
