"""A round with the partners that the schedule names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from typing_extensions import override

from hadpsgd.decentralized.core.coordination import Coordination
from hadpsgd.decentralized.core.events import Mix
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.note import Note
from hadpsgd.decentralized.core.place import Place
from hadpsgd.decentralized.core.sums import combine
from hadpsgd.decentralized.network.collectives import Group
from hadpsgd.decentralized.network.rounding import Rounding, Sender, message_like
from hadpsgd.decentralized.network.transport import Arrival, Transport
from hadpsgd.decentralized.strategies.exchange import Exchange
from hadpsgd.decentralized.topology.mixing import MixingSchedule, Takes


class PeerExchange(Exchange):
    """Snapshots to and from the partners that the schedule names.

    A member of a super-learner exchanges its shard with its counterparts in the others, and the
    members then gather the shards: a super-learner sends each weight once.

    `before_sending` is called before others can see a snapshot.
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
        *,
        before_sending: Callable[[], object] = lambda: None,
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
        self._before_sending = before_sending

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
        self._before_sending()

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
