"""Crews of learners that can be killed and replaced, and what their records must say of them."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import socket
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import dense
import numpy as np
import torch
import torch.distributed as dist
from engine_task import batch, dense_gradient, make_model
from engine_task import rate as steep_rate
from processes import Outcome, Process, free_port, launch_rank

from hadpsgd.decentralized import assembly
from hadpsgd.decentralized.core.buffers import flatten
from hadpsgd.decentralized.core.engine import ExcludedError, LostMemberError
from hadpsgd.decentralized.core.events import Event, Join, Mix, Update, ledger_faults
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.sgd import Sgd
from hadpsgd.decentralized.core.sums import mean_of
from hadpsgd.decentralized.elastic.helpers import Helper, Word, lets_in, may_help
from hadpsgd.decentralized.elastic.membership import Membership
from hadpsgd.decentralized.network import job_store, rendezvous, tcp
from hadpsgd.decentralized.network.link import Link
from hadpsgd.decentralized.record.entries import Entry
from hadpsgd.decentralized.record.reading import events_of, read
from hadpsgd.decentralized.record.record import Recorder
from hadpsgd.decentralized.record.replay import Replay
from hadpsgd.decentralized.strategies import registry as strategies
from hadpsgd.decentralized.strategies.mixing_engine import DecentralizedEngine
from hadpsgd.decentralized.topology.schedules import create
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


def serve(rank: int, port: int) -> None:  # noqa: ARG001
    """A store, until it is killed."""
    faulthandler.unregister(signal.SIGUSR2)  # where it was is no news
    store = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    signal.pause()
    del store


class Crew:
    """The processes of a run, and the store that outlives them."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.port = free_port()
        # in a process of its own: who is forked while its thread looks up a name hangs
        self.store = launch_rank(0, 1, serve, self.port, env={})
        self.env = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.port),
            job_store.AGENTS: "True",
        }
        self.running: dict[int, Process] = {}
        self.done: dict[int, Outcome] = {}

    def start(
        self, rank: int, plan: Plan | None = None, *, join: int = 0, returns: bool = False
    ) -> None:
        """A learner, from the beginning or a newcomer in life number `join` of its node.

        `returns`: to the first member of its super-learner, which lives.
        """
        env = self.env | ({rendezvous.JOIN: str(int(join))} if join else {})
        env |= {rendezvous.RETURN: "yes"} if returns else {}
        self.running[rank] = launch_rank(
            rank, self.plan.learners, learner, plan or self.plan, env=env
        )

    def under_way(self, size: int = 300) -> None:
        """Wait until all have written so much of their records."""
        self.wait_for_sizes(dict.fromkeys(self._nodes(), size + 1))

    def _nodes(self) -> list[int]:
        """Super-learners that run."""
        return sorted({rank // self.plan.size for rank in self.running})

    def wait_until_all_mix(self) -> None:
        """Until everybody has written more of its record."""
        self.wait_for_sizes({n: file_of(self.plan, n).stat().st_size + 30 for n in self._nodes()})

    def wait_until_the_living_mix(self) -> None:
        """As `wait_until_all_mix`, without those that end meanwhile."""
        begin = {n: file_of(self.plan, n).stat().st_size for n in self._nodes()}
        deadline = time.monotonic() + PATIENCE
        while stuck := [
            n for n in self._nodes() if file_of(self.plan, n).stat().st_size < begin[n] + 30
        ]:
            assert time.monotonic() < deadline, f"learners {stuck} do not mix; {self.ended()}"
            self.reap(list(self.running))
            time.sleep(0.01)

    def wait_for_sizes(self, wanted: dict[int, int], seconds: float = PATIENCE) -> None:
        """Until the records are so long."""
        files = {node: file_of(self.plan, node) for node in wanted}
        deadline = time.monotonic() + seconds
        while stuck := [
            node
            for node, file in files.items()
            if not file.exists() or file.stat().st_size < wanted[node]
        ]:
            assert time.monotonic() < deadline, f"learners {stuck} do not mix; {self.ended()}"
            time.sleep(0.01)

    def ended(self) -> str:
        """How those that run no more came to their end."""
        self.reap(list(self.running))
        return "\n".join(f"{rank}: {outcome.error}" for rank, outcome in self.done.items())

    def reap(self, ranks: list[int]) -> None:
        """Note the outcomes of those that have ended."""
        for rank in ranks:
            if (outcome := self.running[rank].reap()) is not None:
                del self.running[rank]
                self.done[rank] = outcome

    def kill_and_replace(self, times: int, seed: int = 0) -> None:
        """Again and again one is killed, and a newcomer takes its place."""
        draws = np.random.default_rng(seed)
        for _ in range(times):
            victim = int(draws.integers(self.plan.learners))
            self.kill(victim)
            time.sleep(draws.uniform(0.0, 0.3))
            self.start(victim, join=1)
            time.sleep(draws.uniform(0.0, 0.5))

    def enough(self) -> None:
        """Let the run end."""
        store = dist.TCPStore("127.0.0.1", self.port, is_master=False)
        rendezvous.of_attempt(store, "0").set("enough", "")

    def kill(self, rank: int) -> None:
        """kill -9."""
        os.kill(self.running[rank].pid, signal.SIGKILL)
        self.wait([rank])

    def wait(self, ranks: list[int], seconds: float = PATIENCE) -> None:
        """Until these have ended."""
        deadline = time.monotonic() + seconds
        while (left := [r for r in ranks if r in self.running]) and time.monotonic() < deadline:
            self.reap(left)
            time.sleep(0.005)
        assert not left, f"ranks {left} hang"

    def results(self, seconds: float = PATIENCE) -> dict[int, Done]:
        """Of those that came to their end."""
        self.wait(list(self.running), seconds)
        failed = {r: o.error for r, o in self.done.items() if o.error and o.error != "died"}
        assert not failed, "\n".join(failed.values())
        return {rank: o.value for rank, o in self.done.items() if o.value is not None}

    def close(self) -> None:
        """Leave nothing behind."""
        for process in (*self.running.values(), self.store):
            process.kill()


def entries(plan: Plan) -> dict[int, list[Entry]]:
    """Records of all learners, the dead included."""
    schedule = create(plan.schedule, learners=plan.nodes, seed=SEED)
    return {n: read(file_of(plan, n), schedule) for n in range(plan.nodes)}


def records(plan: Plan) -> dict[int, list[Event]]:
    """Their events."""
    return {n: events_of(found) for n, found in entries(plan).items()}


def starts(plan: Plan) -> dict[int, np.ndarray]:
    """Initial weights."""
    return {
        n: flatten(
            make_model(torch.float64, seed=n if plan.still else 0), shards=plan.learners
        ).weights.numpy()
        for n in range(plan.nodes)
    }


def nothing(learner: int, step: int, weights: np.ndarray) -> np.ndarray:  # noqa: ARG001
    """No gradient."""
    return np.zeros_like(weights)


def mean_gradient(plan: Plan) -> Callable[[int, int, np.ndarray], np.ndarray]:
    """The oracle's gradients of super-learners."""
    of_learner = dense_gradient()

    def gradient(node: int, step: int, weights: np.ndarray) -> np.ndarray:
        return np.mean([of_learner(rank, step, weights) for rank in plan.members(node)], axis=0)

    return gradient


def of_nodes(plan: Plan, results: dict[int, Done]) -> dict[int, Done]:
    """Results by super-learner, whose living members' copies are equal, bit for bit."""
    found = {}
    for node in {rank // plan.size for rank in results}:
        first, *others = (results[rank] for rank in plan.members(node) if rank in results)
        for other in others:
            np.testing.assert_array_equal(first.weights, other.weights)
            np.testing.assert_array_equal(first.velocity, other.velocity)
            assert (first.alive, first.steps) == (other.alive, other.steps)
        found[node] = first
    return found


def check(plan: Plan, results: dict[int, Done]) -> None:
    """Records and weights fit; every exchange counts on both sides or on none.

    One side alone may count an exchange only if the other died after it had acknowledged it.
    """
    record = records(plan)
    assert not ledger_faults(record)
    gradient = nothing if plan.still else mean_gradient(plan)
    versions = dense.evaluate(
        record, starts(plan), gradient, dense.Sgd(momentum=0 if plan.still else 0.9)
    )
    for node, done in results.items():
        assert np.isfinite(done.weights).all()
        # the file counts gradients by itself: hold that against the learner's own count
        assert sum(isinstance(event, Update) for event in record[node]) == done.steps
        wanted = versions[node][-1]
        assert np.linalg.norm(done.weights - wanted) < 1e-9 * np.linalg.norm(wanted)
    mixes = {
        (node, event.round, partner): (weight, event.own, version)
        for node, events in record.items()
        for event in events
        if isinstance(event, Mix)
        for partner, weight, version in event.takes
    }
    for (node, round_, partner), (weight, own, version) in mixes.items():
        if (partner, round_, node) not in mixes:
            joins = [e for e in record[partner] if isinstance(e, Join)]
            assert partner not in results or joins, f"only {node} counts round {round_}"
        else:  # both took the same share of the same two snapshots: their mean stays
            assert mixes[partner, round_, node] == (weight, version, own)


def replayed(plan: Plan) -> tuple[dict[int, Learner], dict[int, list[float]]]:
    """All learners after their records, and the losses of their minibatches, step by step."""
    model = make_model(torch.float64)
    flat = flatten(model, shards=plan.learners)
    losses: dict[int, list[float]] = {n: [] for n in range(plan.nodes)}

    def gradient(node: int, learner: Learner) -> float:
        flat.point_to(learner.model)
        rows, told = [], 0.0
        for rank in plan.members(node):
            flat.gradient.zero_()
            loss = model.loss(*batch(rank, learner.steps, torch.float64))
            loss.backward()
            told += float(loss.detach()) / plan.size
            rows.append(flat.gradient.clone())
        mean_of(rows, flat.gradient)
        losses[node].append(told)
        return float(flat.gradient.norm())

    learners = {n: Learner(flat.another(), Sgd(momentum=0.9)) for n in range(plan.nodes)}
    Replay(entries(plan), learners, gradient).run()
    return learners, losses


def check_bits(results: dict[int, Done], learners: dict[int, Learner]) -> None:
    """Weights and momentum of those that came to their end are the replayed ones, bit for bit."""
    for node, done in results.items():
        np.testing.assert_array_equal(learners[node].weights.numpy(), done.weights)
        np.testing.assert_array_equal(learners[node].velocity.numpy(), done.velocity)
