"""Learners killed in mid-exchange, again and again: the others go on, the mean is kept."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from engine_task import batch, dense_gradient, make_model, rate
from processes import Outcome, Process, free_port, launch_rank

from hadpsgd.decentralized import assembly, dense, rendezvous, strategies
from hadpsgd.decentralized.buffers import flatten
from hadpsgd.decentralized.events import Join, Mix, Update, ledger_faults
from hadpsgd.decentralized.link import Link
from hadpsgd.decentralized.record import Recorder, read
from hadpsgd.decentralized.replay import events_of
from hadpsgd.decentralized.schedules import create
from hadpsgd.decentralized.sgd import Sgd

SEED = 5


@dataclass(frozen=True)
class Plan:
    """A run whose learners are killed."""

    folder: Path
    learners: int = 4
    schedule: str = "ring"
    steps: int = 60
    pause: float = 0.005
    """Seconds of a gradient."""
    still: bool = False
    """No gradients (rate 0 everywhere), different weights at the start: only mixing acts."""
    die_after_bytes: int = 0
    """A process kills itself when it has sent so much, in the middle of a message."""


@dataclass
class Done:
    """What a learner tells at its end."""

    weights: np.ndarray
    alive: tuple[int, ...]
    longest_wait: float
    """Seconds without a mix."""
    steps: int
    """Gradients applied, its former selves' included."""


def file_of(plan: Plan, node: int) -> Path:
    """Its record."""
    return plan.folder / f"node-{node}.bin"


def learner(rank: int, plan: Plan) -> Done:
    """One process."""
    if plan.die_after_bytes:
        die_in_mid_message(plan.die_after_bytes)
    meeting = rendezvous.meet(plan.learners, 1, "same", 20)
    model = make_model(torch.float64, seed=rank if plan.still else 0)
    engine = assembly.build(
        model,
        Sgd(momentum=0.0 if plan.still else 0.9),
        strategies.create(strategies.Choice("adpsgd")),
        plan.schedule,
        meeting,
        seed=SEED,
        recorder=lambda schedule: Recorder(file_of(plan, rank), {}, schedule, rank),
    )
    if meeting.joining:
        engine.join(20)
    rounds, since, longest = engine.rounds, time.monotonic(), 0.0
    with engine:
        while not engine.over:
            if enough(meeting):
                engine.request_stop()
            if engine.steps < plan.steps:
                if not plan.still:
                    model.loss(*batch(rank, engine.steps, torch.float64)).backward()
                time.sleep(plan.pause)
                engine.step(rate(engine.steps), last=engine.steps + 1 == plan.steps)
            else:
                engine.serve()
            if engine.rounds > rounds:
                longest = max(longest, time.monotonic() - since)
                rounds, since = engine.rounds, time.monotonic()
        engine.learner.settle()
        engine.state_dict()
    return Done(engine.weights.numpy().copy(), tuple(engine.alive), longest, engine.steps)


def enough(meeting: rendezvous.Meeting) -> bool:
    """Whether the test wants the run to end."""
    return meeting.store is not None and meeting.store.check(["enough"])


def die_in_mid_message(after: int) -> None:
    """kill -9 from inside when the links have sent so many bytes."""
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


class Crew:
    """The processes of a run, and the store that outlives them."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        port = free_port()
        self.store = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
        self.env = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            rendezvous.AGENTS_STORE: "True",
        }
        self.running: dict[int, Process] = {}
        self.done: dict[int, Outcome] = {}

    def start(self, rank: int, plan: Plan | None = None, *, join: bool = False) -> None:
        """A learner, from the beginning or as a newcomer."""
        env = self.env | ({rendezvous.JOIN: "1"} if join else {})
        self.running[rank] = launch_rank(
            rank, self.plan.learners, learner, plan or self.plan, env=env
        )

    def under_way(self, size: int = 300) -> None:
        """Wait until all have written so much of their records."""
        files = [file_of(self.plan, rank) for rank in self.running]
        while not all(file.exists() and file.stat().st_size > size for file in files):
            time.sleep(0.01)

    def wait_until_all_mix(self) -> None:
        """Until everybody has written more of its record."""
        sizes = {r: file_of(self.plan, r).stat().st_size for r in self.running}
        deadline = time.monotonic() + 30
        while any(file_of(self.plan, r).stat().st_size < n + 100 for r, n in sizes.items()):
            assert time.monotonic() < deadline, "somebody does not mix"
            time.sleep(0.01)

    def kill(self, rank: int) -> None:
        """kill -9."""
        os.kill(self.running[rank].pid, signal.SIGKILL)
        self.wait([rank])

    def wait(self, ranks: list[int], seconds: float = 30.0) -> None:
        """Until these have ended."""
        deadline = time.monotonic() + seconds
        while (left := [r for r in ranks if r in self.running]) and time.monotonic() < deadline:
            for rank in left:
                outcome = self.running[rank].reap()
                if outcome is not None:
                    del self.running[rank]
                    self.done[rank] = outcome
            time.sleep(0.005)
        assert not left, f"ranks {left} hang"

    def results(self) -> dict[int, Done]:
        """Of those that came to their end."""
        self.wait(list(self.running))
        failed = {r: o.error for r, o in self.done.items() if o.error and o.error != "died"}
        assert not failed, "\n".join(failed.values())
        return {rank: o.value for rank, o in self.done.items() if o.value is not None}

    def close(self) -> None:
        """Leave nothing behind."""
        for process in self.running.values():
            process.kill()


@pytest.fixture
def crews() -> Iterator[list[Crew]]:
    """Crews that a test hires are dismissed at its end."""
    hired: list[Crew] = []
    yield hired
    for crew in hired:
        crew.close()


def records(plan: Plan) -> dict[int, list]:
    """Events of all learners, the dead included."""
    schedule = create(plan.schedule, plan.learners, SEED)
    return {n: events_of(read(file_of(plan, n), schedule)) for n in range(plan.learners)}


def starts(plan: Plan) -> dict[int, np.ndarray]:
    """Initial weights."""
    return {
        n: flatten(
            make_model(torch.float64, seed=n if plan.still else 0), shards=plan.learners
        ).weights.numpy()
        for n in range(plan.learners)
    }


def nothing(learner: int, step: int, weights: np.ndarray) -> np.ndarray:  # noqa: ARG001
    """No gradient."""
    return np.zeros_like(weights)


def check(plan: Plan, results: dict[int, Done]) -> None:
    """Records and weights fit; every exchange counts on both sides or on none.

    One side alone may count an exchange only if the other died after it had acknowledged it.
    """
    record = records(plan)
    assert not ledger_faults(record)
    gradient = nothing if plan.still else dense_gradient()
    versions = dense.evaluate(record, starts(plan), gradient, dense.Sgd(0 if plan.still else 0.9))
    for node, done in results.items():
        assert np.isfinite(done.weights).all()
        # the file counts gradients by itself: hold that against the learner's own count
        assert sum(isinstance(event, Update) for event in record[node]) == done.steps
        wanted = versions[node][-1]
        assert np.linalg.norm(done.weights - wanted) < 1e-9 * np.linalg.norm(wanted)
    mixes = {
        (node, event.round, partner): weight
        for node, events in record.items()
        for event in events
        if isinstance(event, Mix)
        for partner, weight, _ in event.takes
    }
    for (node, round_, partner), weight in mixes.items():
        if (partner, round_, node) not in mixes:
            joins = [e for e in record[partner] if isinstance(e, Join)]
            assert partner not in results or joins, f"only {node} counts round {round_}"
        else:
            assert mixes[partner, round_, node] == weight


@pytest.mark.parametrize("schedule", ["ring", "random-ring", "pairwise"])
@pytest.mark.parametrize("after", [0, 3000, 20_000])
def test_death_in_mid_exchange(
    schedule: str, after: int, tmp_path: Path, crews: list[Crew]
) -> None:
    """The ring heals within 5 s; the survivors finish."""
    plan = Plan(tmp_path, learners=5, schedule=schedule)
    crew = Crew(plan)
    crews.append(crew)
    for rank in range(5):
        doomed = Plan(**{**plan.__dict__, "die_after_bytes": 1 + after})
        crew.start(rank, doomed if rank == 2 else plan)
    results = crew.results()
    assert crew.done[2].code == -signal.SIGKILL
    assert sorted(results) == [0, 1, 3, 4]
    assert all(done.alive == (0, 1, 3, 4) for done in results.values())
    assert max(done.longest_wait for done in results.values()) < 5
    check(plan, results)


def test_two_die_at_once(tmp_path: Path, crews: list[Crew]) -> None:
    plan = Plan(tmp_path, learners=6, steps=150)
    crew = Crew(plan)
    crews.append(crew)
    for rank in range(6):
        crew.start(rank)
    crew.under_way()
    for rank in (1, 4):
        os.kill(crew.running[rank].pid, signal.SIGKILL)
    results = crew.results()
    assert sorted(results) == [0, 2, 3, 5]
    assert all(done.alive == (0, 2, 3, 5) for done in results.values())
    check(plan, results)


def test_the_survivors_keep_their_mean(tmp_path: Path, crews: list[Crew]) -> None:
    """Without gradients nothing but mixing moves weights: what is lost is what the dead held."""
    plan = Plan(tmp_path, learners=5, still=True, steps=100)
    crew = Crew(plan)
    crews.append(crew)
    for rank in range(5):
        crew.start(rank)
    crew.under_way(100)
    crew.kill(3)
    results = crew.results()
    check(plan, results)
    record, start = records(plan), starts(plan)
    versions = dense.evaluate(record, start, nothing)
    # the dead learner's weights, with the exchanges that its partners had settled with it
    rounds = {e.round for e in record[3] if isinstance(e, Mix)}
    held = versions[3][-1].copy()
    for node in results:
        for event in record[node]:
            for partner, weight, version in event.takes if isinstance(event, Mix) else ():
                if partner == 3 and event.round not in rounds:
                    held += weight * (versions[node][event.own] - versions[3][version])
    total = sum(done.weights for done in results.values()) + held
    np.testing.assert_allclose(total, sum(start.values()), rtol=1e-9, atol=1e-9)


def test_a_newcomer_takes_the_place_of_the_dead(tmp_path: Path, crews: list[Crew]) -> None:
    plan = Plan(tmp_path, learners=4, steps=250)
    crew = Crew(plan)
    crews.append(crew)
    for rank in range(4):
        crew.start(rank)
    crew.under_way()
    crew.kill(2)
    time.sleep(0.3)
    crew.start(2, join=True)
    results = crew.results()
    assert sorted(results) == [0, 1, 2, 3]
    assert all(done.alive == (0, 1, 2, 3) for done in results.values())
    check(plan, results)
    assert sum(isinstance(event, Join) for event in records(plan)[2]) == 1


def loss(weights: np.ndarray) -> float:
    """Over the first minibatches of all learners."""
    model = make_model(torch.float64)
    flatten(model, shards=8).weights.copy_(torch.from_numpy(weights))
    with torch.no_grad():
        losses = [model.loss(*batch(i, k, torch.float64)) for i in range(8) for k in range(5)]
    return float(torch.stack(losses).mean())
