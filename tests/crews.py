"""Crews of learners that can be killed and replaced, and what their records must say of them."""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from collections.abc import Callable

import dense
import numpy as np
import torch
import torch.distributed as dist
from crew_learner import PATIENCE, SEED, Done, Plan, file_of, learner
from engine_task import batch, dense_gradient, make_model
from processes import Outcome, Process, free_port, launch_rank

from hadpsgd.decentralized.core.buffers import flatten
from hadpsgd.decentralized.core.events import Event, Join, Mix, Update, ledger_faults
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.sgd import Sgd
from hadpsgd.decentralized.core.sums import mean_of
from hadpsgd.decentralized.network import rendezvous, variables
from hadpsgd.decentralized.record.entries import Entry
from hadpsgd.decentralized.record.reading import events_of, read
from hadpsgd.decentralized.record.replay import Replay
from hadpsgd.decentralized.topology.schedules import create


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
            variables.AGENTS: "True",
        }
        self.running: dict[int, Process] = {}
        self.done: dict[int, Outcome] = {}

    def start(
        self, rank: int, plan: Plan | None = None, *, join: int = 0, returns: bool = False
    ) -> None:
        """A learner, from the beginning or a newcomer in life number `join` of its node.

        `returns`: to the first member of its super-learner, which lives.
        """
        env = self.env | ({variables.JOIN: str(int(join))} if join else {})
        env |= {variables.RETURN: "yes"} if returns else {}
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
