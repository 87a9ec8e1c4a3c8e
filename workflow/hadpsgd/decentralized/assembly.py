"""Put an engine together: buffers, learner, groups, transport, exchange, mixer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch.distributed as dist
from torch import nn
from typing_extensions import override

from hadpsgd.decentralized.core.buffers import flatten
from hadpsgd.decentralized.core.events import Event
from hadpsgd.decentralized.core.heap import keep_freed_memory
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.optimiser import Optimiser
from hadpsgd.decentralized.core.threads import RealClock
from hadpsgd.decentralized.elastic.exchange import ElasticExchange
from hadpsgd.decentralized.elastic.members import ElasticMemberMixer
from hadpsgd.decentralized.elastic.membership import Membership
from hadpsgd.decentralized.elastic.parts import ElasticParts
from hadpsgd.decentralized.elastic.reunion import Reunion, group_name, wait_to_be_called
from hadpsgd.decentralized.network import sockets
from hadpsgd.decentralized.network.collectives import Averaging, Group
from hadpsgd.decentralized.network.injectors import Injection
from hadpsgd.decentralized.network.reducer import Reducer
from hadpsgd.decentralized.network.rendezvous import Meeting, keep, process_group
from hadpsgd.decentralized.network.rounding import message_like
from hadpsgd.decentralized.network.tcp import TcpTransport
from hadpsgd.decentralized.record.record import Recorder
from hadpsgd.decentralized.strategies.average_exchange import AverageExchange, PeerAverageExchange
from hadpsgd.decentralized.strategies.exchange import Exchange
from hadpsgd.decentralized.strategies.mixing_engine import DecentralizedEngine
from hadpsgd.decentralized.strategies.peer_exchange import PeerExchange
from hadpsgd.decentralized.strategies.strategy import UNROUNDED, Strategy, check
from hadpsgd.decentralized.topology.mixing import MixingSchedule
from hadpsgd.decentralized.topology.schedules import Complete
from hadpsgd.decentralized.topology.schedules import create as create_schedule
from hadpsgd.errors import UserError


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
    connections = process_group(name, meeting, rank=rank, size=size, by_host=by_host)
    apart = meeting.apart(range(place.rank - rank, place.rank - rank + size))
    first = Group(
        dist.group.WORLD,
        apart=apart,
        by_host=by_host,
        connections=connections if by_host or not on_gpu else (),
        vital=not reduces,
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
    """Those of a process that meets others over the network."""

    def __init__(
        self,
        learner: Learner,
        strategy: Strategy,
        schedule: MixingSchedule,
        meeting: Meeting,
        clock: RealClock,
        made: Groups,
        *,
        reduces: bool = False,
    ) -> None:
        super().__init__(learner, strategy, schedule, meeting.place, clock, made.members)
        self.meeting = meeting
        self.life = meeting.life
        self.alone = meeting.alone
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
            )
            self.meeting.wait_for_all("address")
        return self.made_transport

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


def schedule_of(
    strategy: Strategy, name: str, *, nodes: int, seed: int, injection: Injection | None
) -> MixingSchedule:
    """The mixing schedule of a run, with exchanges left out as `injection` says.

    Raises:
        UserError: no such schedule, or learners draw partners and have none to leave out.
    """
    if not strategy.mixes:
        return Complete(learners=nodes)
    plan = create_schedule(name, learners=nodes, seed=seed)
    if injection is None:
        return plan
    if injection.drop and plan.free and not strategy.synchronous:
        raise UserError(
            f"schedule {name} has no rounds of which exchanges could be dropped",
            fix="Drop exchanges of another schedule",
        )
    return injection.on(plan, one_way=strategy.push_sum)


def build(
    module: nn.Module,
    sgd: Optimiser,
    strategy: Strategy,
    schedule: str,
    meeting: Meeting,
    *,
    seed: int = 0,
    record: Callable[[Event], None] | None = None,
    recorder: Callable[[MixingSchedule], Recorder] | None = None,
    injection: Injection | None = None,
    skip_not_finite: bool = False,
    by_host: bool = False,
    backwards: int = 1,
    reduces: bool = False,
) -> DecentralizedEngine:
    """An engine for `module`, which lies on its device and has the same weights on every rank.

    `injection` slows links and leaves exchanges out. `recorder` makes the recorder of this rank's
    node; its first member writes. `record` is told of every event instead. `by_host`: see `Group`.
    `backwards`: see `Reducer`. `reduces`: see `Membership`; whoever trains calls `take` then.

    Raises:
        UserError: strategy and schedule, or module and optimiser, do not fit.
        TooLateError: the run is over, and this process was to come back to its super-learner.
    """
    keep_freed_memory()
    place, clock = meeting.place, RealClock()
    plan = schedule_of(strategy, schedule, nodes=place.nodes, seed=seed, injection=injection)
    check(strategy, plan, learners=place.world, size=place.size)
    flat = flatten(module, shards=place.world)
    shared = place.world > 1 and (place.size > 1 or strategy.shared_steps > 0)
    sgd.bind(flat, shared=shared)
    if strategy.wire == "int8" and flat.statistics:
        raise UserError(
            "variances of normalisation layers cannot travel as int8: they could become negative",
            fix="Choose wire float32 or bfloat16",
        )
    if reduces and place.size > 1 and (strategy.wire != UNROUNDED or flat.weights.is_cuda):
        raise UserError(
            "a member cannot go on alone on a GPU, or where weights are rounded on their way",
            fix="Set training.member_death to leave",
        )
    writer = recorder(plan) if recorder is not None and place.member == 0 else None
    learner = Learner(
        flat,
        sgd,
        late=strategy.late,
        outer=strategy.outer(flat.weights[flat.learnt], plan, place.node),
        record=writer.event if writer is not None else record,
        folded=writer.fold if writer is not None else None,
        changed=clock.condition("the learner"),
    )
    if meeting.returning:
        wait_to_be_called(meeting)
    made = groups(strategy, meeting, on_gpu=flat.weights.is_cuda, by_host=by_host, reduces=reduces)
    parts = ProcessParts(learner, strategy, plan, meeting, clock, made, reduces=reduces)
    mixer = strategy.mixer(parts)
    reducer = Reducer(flat, made.gradients, backwards=backwards)
    transport = parts.made_transport
    if writer is not None and isinstance(mixer.exchange, PeerExchange):
        mixer.exchange.before_sending = writer.flush

    if transport is not None and injection is not None and injection.slows_links:
        slow = injection
        transport.delay = lambda partner, size: (
            0.0
            if partner in place.others
            else slow.delay(learner=place.rank, partner=partner, size=size)
        )

    def close() -> None:
        if isinstance(mixer.exchange, ElasticExchange):
            mixer.exchange.leave()
        if transport is not None:
            transport.close()
        if dist.is_initialized():
            dist.destroy_process_group()

    return DecentralizedEngine(
        module,
        learner,
        strategy,
        mixer,
        reducer,
        place,
        clock,
        recorder=writer,
        join=mixer.exchange.join if isinstance(mixer.exchange, ElasticExchange) else None,
        reunion=(
            Reunion(meeting, learner, mixer, made.gradients)
            if reduces and isinstance(mixer, ElasticMemberMixer)
            else None
        ),
        skip_not_finite=skip_not_finite,
        close=close,
    )
