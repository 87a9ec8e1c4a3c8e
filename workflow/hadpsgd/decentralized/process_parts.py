"""What the engine of a process is made of: process groups, and a transport over the network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch.distributed as dist
from typing_extensions import override

from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.threads import RealClock
from hadpsgd.decentralized.elastic.membership import Membership
from hadpsgd.decentralized.elastic.parts import ElasticParts
from hadpsgd.decentralized.elastic.reunion import group_name
from hadpsgd.decentralized.network import sockets
from hadpsgd.decentralized.network.averaging import Averaging
from hadpsgd.decentralized.network.collectives import Group
from hadpsgd.decentralized.network.injectors import Injection
from hadpsgd.decentralized.network.rendezvous import Meeting, keep, process_group
from hadpsgd.decentralized.network.rounding import message_like
from hadpsgd.decentralized.network.tcp import TcpTransport
from hadpsgd.decentralized.strategies.average_exchange import AverageExchange, PeerAverageExchange
from hadpsgd.decentralized.strategies.exchange import Exchange
from hadpsgd.decentralized.strategies.strategy import Strategy
from hadpsgd.decentralized.topology.mixing import MixingSchedule


@dataclass(frozen=True)
class Groups:
    """Process groups of this rank; those that nobody needs are of size 1."""

    gradients: Group
    """Over which gradients are averaged."""
    members: Group
    """The super-learner, for the communication thread of a synchronous strategy."""
    everyone: Group
    """All ranks, for averages of weights."""


def groups(
    strategy: Strategy,
    meeting: Meeting,
    *,
    on_gpu: bool = False,
    by_host: bool = False,
    reduces: bool = False,
) -> Groups:
    """Make the process groups; every rank calls it.

    The default group is the super-learner's (or everybody's, where a strategy needs that): the
    death of a rank never breaks the groups of other super-learners. On GPUs the communication
    thread of a super-learner goes by the hosts' memory: NCCL is left to the compute thread.
    `reduces`: members may go on without others.
    """
    place = meeting.place
    alone = Group(None)
    whole = place.size == 1 and (strategy.collective or strategy.shared_steps > 0)
    if place.world == 1 or (place.size == 1 and not whole):
        return Groups(alone, alone, alone)
    if meeting.alone:
        return Groups(Group(None, size=place.size), alone, alone)
    name, rank, size = (
        ("everyone", place.rank, place.world)
        if whole
        else (group_name(place.node, life=meeting.life), place.member, place.size)
    )
    connections = process_group(name, meeting, rank=rank, size=size, by_host=by_host or not on_gpu)
    apart = meeting.apart(range(place.rank - rank, place.rank - rank + size))
    first = Group(
        dist.group.WORLD,
        apart=apart,
        by_host=by_host,
        connections=connections if by_host or not on_gpu else (),
        vital=not reduces,
        seconds=meeting.timeout.total_seconds(),
    )
    second = alone
    if strategy.mixes and strategy.synchronous:
        before = sockets.found()
        made = keep(dist.new_group(timeout=meeting.timeout))
        by_host = by_host or (on_gpu and not whole)
        second = Group(
            made,
            apart=apart,
            by_host=by_host,
            connections=sockets.new_since(before) if by_host or not on_gpu else (),
            vital=True,
        )
    return Groups(first, alone, second) if whole else Groups(first, second, alone)


class ProcessParts(ElasticParts):
    """Those of a process that meets others over the network, whose links `injection` may slow."""

    def __init__(
        self,
        learner: Learner,
        strategy: Strategy,
        schedule: MixingSchedule,
        meeting: Meeting,
        clock: RealClock,
        made: Groups,
        *,
        before_sending: Callable[[], object],
        injection: Injection | None = None,
        reduces: bool = False,
    ) -> None:
        super().__init__(
            learner,
            strategy,
            schedule,
            meeting.place,
            clock,
            made.members,
            before_sending=before_sending,
        )
        self.meeting = meeting
        self.life = meeting.life
        self.alone = meeting.alone
        self.injection = injection
        self.reduces = reduces
        self.groups = made
        self.gradients = made.gradients
        self.made_transport: TcpTransport | None = None

    @override
    def transport(self) -> TcpTransport:
        """Over TCP; every rank waits here for all others."""
        if self.made_transport is None:
            shard = self.learner.weights[: self.learner.weights.numel() // self.place.size]
            self.made_transport = TcpTransport(
                self.place.rank,
                message_like(shard.cpu(), self.rounding),
                publish=self.meeting.publish("address"),
                lookup=self.meeting.lookup("address"),
                host=self.meeting.host,
                timeout=self.meeting.timeout.total_seconds(),
                pin=shard.is_cuda,
                # members of a super-learner send each other shards of mixes
                room=shard.nbytes if self.place.size > 1 else 0,
                delay=self._delay,
            )
            self.meeting.wait_for_all("address")
        return self.made_transport

    @property
    def _delay(self) -> Callable[[int, int], float] | None:
        """Of a message to another super-learner."""
        slow, place = self.injection, self.place
        if slow is None or not slow.slows_links:
            return None
        return lambda partner, size: (
            0.0
            if partner in place.others
            else slow.delay(learner=place.rank, partner=partner, size=size)
        )

    @override
    def average(self) -> Exchange:
        """An allreduce; of super-learners, shards from everybody to everybody."""
        if self.place.size > 1:
            return self.peers(PeerAverageExchange)
        everyone = self.groups.everyone
        averaging = partial(Averaging, everyone)
        return AverageExchange(self.learner, self.coordination, self.place, averaging, [everyone])

    @override
    def membership(self) -> Membership:
        """Agreed on in the store of all processes."""
        return Membership(
            self.meeting.prefixed("mixing"),
            self.schedule,
            self.place.rank,
            self.transport().lives,
            self.meeting.timeout.total_seconds(),
            size=self.place.size,
            reduces=self.reduces,
        )
