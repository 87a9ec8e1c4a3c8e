"""A learner of a crew: the plan of its run, what it does as one process, and how it dies."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from engine_task import batch, make_model
from engine_task import rate as steep_rate

from hadpsgd.decentralized import assembly
from hadpsgd.decentralized.core.buffers import flatten
from hadpsgd.decentralized.core.engine import ExcludedError, LostMemberError
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.sgd import Sgd
from hadpsgd.decentralized.elastic.helpers import Helper, Word, lets_in, may_help
from hadpsgd.decentralized.elastic.membership import Membership
from hadpsgd.decentralized.network import rendezvous, tcp
from hadpsgd.decentralized.network.link import Link
from hadpsgd.decentralized.record.record import Recorder
from hadpsgd.decentralized.strategies import registry as strategies
from hadpsgd.decentralized.strategies.mixing_engine import DecentralizedEngine
from hadpsgd.models.blstm import BLSTM

SEED = 5
LOSE_CONNECTIONS = signal.SIGRTMIN
"""Sent to a learner, shuts them down."""
PATIENCE = 150.0
"""Seconds that a busy machine is waited for."""


def rate(step: int) -> float:
    """Small enough for runs of thousands of steps: with `engine_task.rate` and momentum 0.9 the
    smallest difference grows to a tenth of the weights within 1000 steps, so that no two ways of
    rounding agree.
    """
    return 0.1 * steep_rate(step)


@dataclass(frozen=True)
class Plan:
    """A run whose learners are killed."""

    folder: Path
    learners: int = 4
    size: int = 1
    """Learners of a super-learner."""
    schedule: str = "ring"
    steps: int = 60
    pause: float = 0.005
    """Seconds of a gradient."""
    still: bool = False
    """No gradients (rate 0 everywhere), different weights at the start: only mixing acts."""
    pause_every: int = 0
    """Steps after which a learner asks all for a pause, as for a checkpoint (0: never)."""
    reduces: bool = False
    """Whether a super-learner goes on by its first member."""
    inherits: bool = False
    """Whether another member takes the place of a first one that died, as the test says."""
    waits: bool = False
    """Whether that one takes no gradients before new members have come."""
    deaf: bool = False
    """Whether a first member that is alone takes part in no change before its own news."""
    die_after_bytes: int = 0
    die_after_takes: int = 0
    """A process kills itself when it has sent so much, in the middle of a message."""

    @property
    def nodes(self) -> int:
        """Super-learners."""
        return self.learners // self.size

    def members(self, node: int) -> range:
        """Ranks of a super-learner."""
        return range(node * self.size, (node + 1) * self.size)


DOOMS = [{"die_after_bytes": 1}, {"die_after_bytes": 3001}, {"die_after_takes": 5}]
"""In the first message, in the midst of weights, and with weights that it has just copied."""


@dataclass
class Done:
    """What a learner tells at its end."""

    weights: np.ndarray
    alive: tuple[int, ...]
    longest_wait: float
    """Seconds without a mix."""
    steps: int
    """Gradients applied, its former selves' included."""
    velocity: np.ndarray
    pauses: int
    """In which it stood still with all others."""


def file_of(plan: Plan, node: int) -> Path:
    """Its record."""
    return plan.folder / f"node-{node}.bin"


def learner(rank: int, plan: Plan) -> Done | None:  # noqa: ARG001
    """One process; of a super-learner that has lost a member, it helps the first one meanwhile."""
    signal.signal(LOSE_CONNECTIONS, lambda *_: lose_connections())
    if plan.die_after_bytes:
        die_in_mid_message(plan.die_after_bytes)
    if plan.die_after_takes:
        die_while_taking(plan.die_after_takes)
    if plan.deaf:
        be_deaf_alone()
    meeting = rendezvous.meet(
        learners=plan.learners, size=plan.size, agree_on="same", seconds=PATIENCE
    )
    while True:
        try:
            return takes_part(meeting, plan)
        except (LostMemberError, ExcludedError):
            if not (plan.reduces and (may_help(meeting.place) or plan.inherits)):
                raise
        word = None
        while word is None and not meeting.alone:
            try:
                word = helps(meeting, plan)
            except LostMemberError:
                if not plan.inherits:
                    raise
                meeting = inherits(meeting)
        if word is None:
            continue
        if not word.life:
            return None
        meeting = replace(meeting, life=word.life, returning=True)


def inherits(meeting: rendezvous.Meeting) -> rendezvous.Meeting:
    """As the test says, once the first member has died: take its place, or help who does."""
    place = meeting.place
    while (found := heir_of(meeting)) is None:
        time.sleep(0.02)
    heir, life = found
    if heir == place.rank:
        first = replace(place, rank=place.rank - place.member)
        return replace(meeting, place=first, life=life, returning=False, alone=True)
    meeting = replace(meeting, life=life)
    while not lets_in(meeting) and heir_of(meeting) is None:
        time.sleep(0.02)
    return meeting


def heir_of(meeting: rendezvous.Meeting) -> tuple[int, int] | None:
    """Who is to take the first member's place, in which life; None: nobody since this one."""
    store, node = meeting.prefixed("heir"), str(meeting.place.node)
    if not store.check([node]):
        return None
    heir, life = map(int, store.get(node).split())
    return (heir, life) if life > meeting.life else None


def helps(meeting: rendezvous.Meeting, plan: Plan) -> Word:
    """Until new members have come, or the run ends."""
    helper = Helper(meeting, lambda: heir_of(meeting) is not None)
    model = make_model(torch.float64)

    def take(member: int, of: Sequence[int]) -> tuple[float, int]:
        time.sleep(plan.pause)
        (step,) = of
        with (plan.folder / f"helped-{meeting.place.rank}").open("a") as stream:
            stream.write(f"{member} {step}\n")
        loss = model.loss(*batch(plan.members(meeting.place.node)[member], step, torch.float64))
        loss.backward()
        return float(loss.detach()), 1

    return helper.serve(Learner(flatten(model, shards=plan.learners), Sgd(momentum=0.9)), take)


def takes_part(meeting: rendezvous.Meeting, plan: Plan) -> Done:
    """As a learner."""
    node = meeting.place.node
    model = make_model(torch.float64, seed=node if plan.still else 0)
    engine = assembly.build(
        model,
        Sgd(momentum=0.0 if plan.still else 0.9),
        strategies.create(strategies.Choice(strategy="adpsgd")),
        plan.schedule,
        meeting,
        seed=SEED,
        recorder=lambda schedule: Recorder(file_of(plan, node), {}, schedule, node),
        reduces=plan.reduces,
    )
    if meeting.returning:
        engine.come_back()
    elif meeting.joining:
        engine.join(PATIENCE)
    rounds, since, longest, pauses = engine.rounds, time.monotonic(), 0.0, 0
    with engine:
        if engine.steps >= plan.steps:  # the former self has applied all: maybe nobody knows
            engine.no_more_gradients()
        while not engine.over:
            if enough(meeting):
                engine.request_stop()
            if engine.alone and not engine.let_in() and plan.waits:
                engine.rest()
            elif engine.steps < plan.steps:
                step(engine, plan, model)
                if plan.pause_every and engine.steps % plan.pause_every == 0:
                    engine.request_pause()
            else:
                engine.serve()
            if engine.paused and not engine.over:
                engine.state_dict()
                engine.go_on()
                pauses += 1
            if engine.rounds > rounds:
                longest = max(longest, time.monotonic() - since)
                rounds, since = engine.rounds, time.monotonic()
        engine.learner.settle()
        engine.state_dict()
    return Done(
        engine.weights.numpy().copy(),
        tuple(engine.alive),
        longest,
        engine.steps,
        engine.learner.velocity.numpy().copy(),
        pauses,
    )


def step(engine: DecentralizedEngine, plan: Plan, model: BLSTM) -> None:
    """One gradient; again, of all members, if they are lost meanwhile."""

    def backward(member: int) -> tuple[float, int]:
        time.sleep(plan.pause)
        if plan.still:
            return 0.0, 1
        learner = plan.members(engine.place.node)[member]
        loss = model.loss(*batch(learner, engine.steps, torch.float64))
        loss.backward()
        return float(loss.detach()), 1

    while True:
        try:
            engine.take(backward, [engine.steps])
            engine.step(rate(engine.steps), last=engine.steps + 1 == plan.steps)
            return
        except LostMemberError as lost:
            engine.go_alone(lost)
            if plan.waits:
                return


def enough(meeting: rendezvous.Meeting) -> bool:
    """Whether the test wants the run to end."""
    return meeting.store is not None and meeting.store.check(["enough"])


def lose_connections() -> None:
    """All that lead to other learners, under those who use them; the store's stays."""
    for name in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if not stat.S_ISSOCK(name.stat().st_mode):
                continue  # a copy of it would stay open
            with socket.socket(fileno=os.dup(int(name.name))) as found:
                inet = found.family != socket.AF_UNIX
                if inet and found.getpeername()[1] != int(os.environ["MASTER_PORT"]):
                    found.shutdown(socket.SHUT_RDWR)


def be_deaf_alone() -> None:
    """Nothing is heard of what others propose while the other members are missing."""
    hears = Membership.changing

    def changing(self: Membership) -> bool:
        return self.node not in self.reduced and hears(self)

    Membership.changing = changing  # type: ignore[method-assign]


def die_in_mid_message(after: int) -> None:
    """kill -9 from inside when the links have sent so many bytes, weights among them."""
    tcp.shelf_of = lambda *_, **__: None  # type: ignore[assignment]
    sent = 0
    send = Link.send

    def counting(link: Link) -> int:
        nonlocal sent
        if sent > after and link.outbox:
            link.sock.send(link.outbox[0][:7])
            os.kill(os.getpid(), signal.SIGKILL)
        n = send(link)
        sent += n
        return n

    Link.send = counting  # type: ignore[method-assign,assignment]


def die_while_taking(after: int) -> None:
    """kill -9 from inside with so many snapshots copied, the last of which nobody knows of."""
    taken = 0
    take = Link.take_weights

    def counting(link: Link, into: memoryview) -> bool:
        nonlocal taken
        there = take(link, into)
        taken += 1
        if taken >= after:
            os.kill(os.getpid(), signal.SIGKILL)
        return there

    Link.take_weights = counting  # type: ignore[method-assign,assignment]
