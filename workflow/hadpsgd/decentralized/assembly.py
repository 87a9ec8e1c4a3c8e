"""Put an engine together: buffers, learner, groups, transport, exchange, mixer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch.distributed as dist
from torch import nn

from hadpsgd.decentralized.core.buffers import flatten
from hadpsgd.decentralized.core.coordination import Coordination
from hadpsgd.decentralized.core.events import Event
from hadpsgd.decentralized.core.heap import keep_freed_memory
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.sgd import Sgd
from hadpsgd.decentralized.core.threads import RealClock
from hadpsgd.decentralized.elastic.exchange import ElasticExchange
from hadpsgd.decentralized.elastic.membership import Membership
from hadpsgd.decentralized.network.collectives import Averaging, Group, Reducer
from hadpsgd.decentralized.network.injectors import Injection
from hadpsgd.decentralized.network.rendezvous import Meeting, keep, process_group
from hadpsgd.decentralized.network.tcp import TcpTransport
from hadpsgd.decentralized.record.record import Recorder
from hadpsgd.decentralized.strategies.exchange import (
    AverageExchange,
    NoExchange,
    PeerAverageExchange,
    PeerExchange,
)
from hadpsgd.decentralized.strategies.members import MemberMixer
from hadpsgd.decentralized.strategies.mixer import FreeMixer, Mixer, NoMixer, StepMixer
from hadpsgd.decentralized.strategies.mixing_engine import DecentralizedEngine
from hadpsgd.decentralized.strategies.strategy import Strategy
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
    """The super-learner, for the communication thread."""
    everyone: Group
    """All ranks, for averages of weights."""


def check(strategy: Strategy, schedule: MixingSchedule, *, nodes: int, size: int) -> None:
    """Refuse what cannot work.

    Raises:
        UserError: says why.
    """
    where = f"strategy {strategy.name} with schedule {schedule.name}"
    if strategy.mixes and nodes < 2:
        raise UserError("needs at least 2 super-learners to mix", where=where)
    if strategy.collective and schedule.name != "complete":
        raise UserError("averages all weights", where=where, fix="Its schedule is `complete`")
    if not strategy.synchronous and not schedule.symmetric:
        raise UserError(
            "an asynchronous strategy needs exchanges in both directions",
            where=where,
            fix="Choose ring, random-ring, pairwise or complete, or the strategy dpsgd",
        )
    if size > 1 and strategy.mixes and strategy.shared_steps:
        raise UserError(
            "cannot share gradients among super-learners at first",
            where=where,
            fix="Set synchronous_steps to 0, or super_learner to 1",
        )


def groups(
    strategy: Strategy, meeting: Meeting, *, on_gpu: bool = False, by_host: bool = False
) -> Groups:
    """Make the process groups; every rank calls it.

    The default group is the super-learner's (or everybody's, where a strategy needs that): the
    death of a rank never breaks the groups of other super-learners. On GPUs the communication
    thread of a super-learner goes by the hosts' memory: NCCL is left to the compute thread.
    """
    place = meeting.place
    alone = Group(None)
    whole = place.size == 1 and (strategy.collective or strategy.shared_steps > 0)
    if place.world == 1 or (place.size == 1 and not whole):
        return Groups(alone, alone, alone)
    name, rank, size = (
        ("everyone", place.rank, place.world)
        if whole
        else (f"super-learner/{place.node}", place.member, place.size)
    )
    process_group(name, meeting, rank=rank, size=size, by_host=by_host)
    apart = meeting.apart(range(place.rank - rank, place.rank - rank + size))
    first = Group(dist.group.WORLD, apart=apart, by_host=by_host)
    second = alone
    if strategy.mixes:
        made = keep(dist.new_group(timeout=meeting.timeout))
        second = Group(made, apart=apart, by_host=by_host or (on_gpu and not whole))
    return Groups(first, alone, second) if whole else Groups(first, second, alone)


def build(
    module: nn.Module,
    sgd: Sgd,
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
) -> DecentralizedEngine:
    """An engine for `module`, which lies on its device and has the same weights on every rank.

    `injection` slows links and leaves exchanges out. `recorder` makes the recorder of this rank's
    node; its first member writes. `record` is told of every event instead. `by_host`: see `Group`.

    Raises:
        UserError: strategy and schedule do not fit.
    """
    keep_freed_memory()
    place, clock = meeting.place, RealClock()
    plan = (
        create_schedule(schedule, learners=place.nodes, seed=seed)
        if strategy.mixes
        else Complete(learners=place.nodes)
    )
    if injection is not None:
        plan = injection.on(plan)
    check(strategy, plan, nodes=place.nodes, size=place.size)
    flat = flatten(module, shards=place.world)
    writer = recorder(plan) if recorder is not None and place.member == 0 else None
    learner = Learner(
        flat,
        sgd,
        late=strategy.late,
        record=writer.event if writer is not None else record,
        folded=writer.fold if writer is not None else None,
        changed=clock.condition("the learner"),
    )
    made = groups(strategy, meeting, on_gpu=flat.weights.is_cuda, by_host=by_host)
    coordination = Coordination(plan, place.node)
    reducer = Reducer(flat, made.gradients)
    mixer, transport = _mixer(learner, strategy, plan, meeting, made, coordination, clock)
    if writer is not None and isinstance(mixer.exchange, PeerExchange):
        mixer.exchange.before_sending = writer.flush

    if transport is not None and injection is not None and injection.slows_links:
        slow = injection
        transport.delay = lambda partner, size: slow.delay(
            learner=place.rank, partner=partner, size=size
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
        skip_not_finite=skip_not_finite,
        close=close,
    )


def _mixer(
    learner: Learner,
    strategy: Strategy,
    schedule: MixingSchedule,
    meeting: Meeting,
    made: Groups,
    coordination: Coordination,
    clock: RealClock,
) -> tuple[Mixer, TcpTransport | None]:
    place = meeting.place
    if not strategy.mixes:
        return NoMixer(learner, strategy, NoExchange(), coordination, clock), None
    if strategy.collective and place.size == 1:
        averaging = partial(Averaging, made.everyone)
        average = AverageExchange(learner, coordination, place, averaging, [made.everyone])
        return StepMixer(learner, strategy, average, coordination, clock), None
    shard = learner.weights[: learner.weights.numel() // place.size]
    transport = TcpTransport(
        place.rank,
        shard.cpu(),
        publish=meeting.publish("address"),
        lookup=meeting.lookup("address"),
        host=meeting.host,
        timeout=meeting.timeout.total_seconds(),
        pin=shard.is_cuda,
    )
    meeting.wait_for_all("address")
    if strategy.synchronous:
        kind = PeerAverageExchange if strategy.collective else PeerExchange
        step = kind(learner, schedule, transport, coordination, place, made.members)
        return StepMixer(learner, strategy, step, coordination, clock), transport
    if place.size > 1:
        peers = PeerExchange(learner, schedule, transport, coordination, place, made.members)
        together = MemberMixer(
            learner,
            strategy,
            peers,
            coordination,
            clock,
            wait=transport.wait,
            wake=transport.wake,
            gradients=made.gradients,
        )
        return together, transport
    membership = Membership(
        meeting.prefixed("mixing"),
        schedule,
        place.node,
        transport.lives,
        meeting.timeout.total_seconds(),
    )
    exchange = ElasticExchange(learner, schedule, transport, coordination, place, membership)
    free = FreeMixer(
        learner,
        strategy,
        exchange,
        coordination,
        clock,
        wait=transport.wait,
        wake=transport.wake,
    )
    return free, transport
