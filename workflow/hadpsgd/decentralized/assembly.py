"""Put an engine together: buffers, learner, groups, transport, exchange, mixer."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import torch.distributed as dist
from torch import nn

from hadpsgd.decentralized.core.buffers import Flat, flatten
from hadpsgd.decentralized.core.events import Event
from hadpsgd.decentralized.core.heap import keep_freed_memory
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.optimiser import Optimiser
from hadpsgd.decentralized.core.threads import RealClock
from hadpsgd.decentralized.elastic.exchange import ElasticExchange
from hadpsgd.decentralized.elastic.member_mixer import ElasticMemberMixer
from hadpsgd.decentralized.elastic.reunion import Reunion, wait_to_be_called
from hadpsgd.decentralized.network.injectors import Injection
from hadpsgd.decentralized.network.reducer import Reducer
from hadpsgd.decentralized.network.rendezvous import Meeting
from hadpsgd.decentralized.process_parts import ProcessParts, groups
from hadpsgd.decentralized.record.record import Recorder
from hadpsgd.decentralized.strategies.mixing_engine import DecentralizedEngine
from hadpsgd.decentralized.strategies.strategy import UNROUNDED, Strategy, check
from hadpsgd.decentralized.topology.mixing import MixingSchedule
from hadpsgd.decentralized.topology.schedules import Complete
from hadpsgd.decentralized.topology.schedules import create as create_schedule
from hadpsgd.errors import UserError


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


def _check_alike(flat: Flat, meeting: Meeting) -> None:
    """Whether this rank's weights lie as those of the first that came.

    Raises:
        UserError: they do not, as on another kind of device.
    """
    if meeting.store is None:
        return
    layout = hashlib.sha256(repr(flat.layout).encode()).hexdigest()
    if meeting.prefixed("layout").compare_set("all", "", layout).decode() != layout:
        raise UserError(
            f"rank {meeting.place.rank} has its weights in another order than others: it computes "
            "on another kind of device, or another network",
            fix="Let all compute on a GPU, or all on processors",
        )


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
    _check_alike(flat, meeting)
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
    parts = ProcessParts(
        learner,
        strategy,
        plan,
        meeting,
        clock,
        made,
        before_sending=writer.flush if writer is not None else lambda: None,
        injection=injection,
        reduces=reduces,
    )
    mixer = strategy.mixer(parts)
    reducer = Reducer(flat, made.gradients, backwards=backwards)
    transport = parts.made_transport

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
