"""The engine's parts against the equation and the ledger, in orders that a run seldom takes."""

from __future__ import annotations

import functools
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import dense
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from hadpsgd.decentralized.core.buffers import flatten
from hadpsgd.decentralized.core.events import Event, Join, Mix, Update, ledger_faults, staleness
from hadpsgd.decentralized.core.learner import Learner
from hadpsgd.decentralized.core.note import Note
from hadpsgd.decentralized.core.pieces import Pieces
from hadpsgd.decentralized.core.sgd import Sgd
from hadpsgd.decentralized.elastic.decision import Decision, Report
from hadpsgd.decentralized.network import link, tcp
from hadpsgd.decentralized.network.connections import Address
from hadpsgd.decentralized.network.tcp import TcpTransport
from hadpsgd.decentralized.topology.schedules import SCHEDULES

OPTIMISERS = [
    Sgd(),
    Sgd(momentum=0.9),
    Sgd(momentum=0.9, nesterov=True),
    Sgd(momentum=0.5, weight_decay=0.1),
]


def oracle_sgd(sgd: Sgd) -> dense.Sgd:
    """The same settings for the dense evaluation."""
    return dense.Sgd(momentum=sgd.momentum, nesterov=sgd.nesterov, weight_decay=sgd.weight_decay)


class Driven:
    """A learner whose moments are chosen by a test, float64."""

    def __init__(self, index: int, sgd: Sgd, late: bool = False) -> None:
        module = nn.Linear(3, 2).double()
        with torch.no_grad():
            draws = torch.Generator().manual_seed(index)
            for p in module.parameters():
                p.copy_(torch.randn(p.shape, generator=draws, dtype=torch.float64))
        self.index = index
        self.events: list[Event] = []
        self.flat = flatten(module)
        self.learner = Learner(self.flat, sgd, late=late, record=self.events.append)
        self.start = self.weights()
        self.pending_gradient = False

    def weights(self) -> np.ndarray:
        """Present weights, pending mixes included, [P]."""
        out = torch.empty_like(self.learner.weights)
        self.learner.snapshot(out)
        return out.numpy().copy()

    def gradient(self) -> None:
        """Compute the gradient at the model, as backward does: it adds to the buffer."""
        at = self.learner.model.numpy()
        self.learner.gradient.add_(torch.from_numpy(toy(self.index, self.learner.steps, at)))

    def update(self, rate: float) -> int:
        """Apply it."""
        return self.learner.update(rate=rate, norm=float(self.learner.gradient.norm()))


def toy(learner: int, step: int, weights: np.ndarray) -> np.ndarray:
    """A nonlinear gradient; zero in the gaps that the alignment leaves."""
    draw = np.random.default_rng([learner, step])
    used = np.zeros(len(weights))
    used[:6] = used[16:18] = 1
    return used * np.tanh(draw.normal(size=len(weights)) * weights + draw.normal())


def delta_of(own: Tensor, others: list[tuple[Tensor, float]]) -> Tensor:
    """What a round adds: sum_j share_j (x_j - own)."""
    return sum((share * (weights - own) for weights, share in others), torch.zeros_like(own))


@given(st.data(), st.integers(2, 5), st.sampled_from(OPTIMISERS))
@settings(max_examples=80)
def test_any_interleaving_is_the_equation(data: st.DataObject, learners: int, sgd: Sgd) -> None:
    """Gradients begin and land, rounds start and are mixed in, in any order at all."""
    nodes = [Driven(i, sgd) for i in range(learners)]
    schedule = SCHEDULES[data.draw(st.sampled_from(["ring", "random-ring", "pairwise"]))](
        learners=learners, seed=1
    )
    # node: round -> snapshot; it may be whole long after it was begun
    snapshots: list[dict[int, tuple[int, Tensor]]] = [{} for _ in nodes]
    copying: list[dict[int, Pieces]] = [{} for _ in nodes]

    def start(i: int) -> bool:
        learner, k = nodes[i].learner, nodes[i].learner.rounds
        if k in snapshots[i]:
            return False
        out = torch.empty_like(learner.weights)
        version, copying[i][k] = learner.begin_snapshot(out)
        snapshots[i][k] = version, out
        return True

    def mix(i: int) -> bool:
        learner, k = nodes[i].learner, nodes[i].learner.rounds
        takes = schedule.round(k).partners(i)
        if any(k not in snapshots[j] for j in (i, *takes)):
            return False
        for j in (i, *takes):
            copying[j][k].finish()
        version, own = snapshots[i][k]
        others = [(j, share) for j, share in takes.items() if j != i]
        delta = delta_of(own, [(snapshots[j][k][1], share) for j, share in others])
        event = Mix(
            round=k, own=version, takes=tuple((j, share, snapshots[j][k][0]) for j, share in others)
        )
        learner.mix(event, delta)
        return True

    for _ in range(data.draw(st.integers(1, 40))):
        i = data.draw(st.integers(0, learners - 1))
        what = data.draw(st.sampled_from(["begin", "land", "start", "mix"]))
        if what == "begin" and not nodes[i].pending_gradient:
            nodes[i].gradient()
            nodes[i].pending_gradient = True
        elif what == "land" and nodes[i].pending_gradient:
            missed = nodes[i].learner.version - nodes[i].learner.read
            assert nodes[i].update(0.1) == missed
            nodes[i].pending_gradient = False
        elif what == "start":
            start(i)
        elif what == "mix":
            mix(i)

    record = {node.index: node.events for node in nodes}
    assert not ledger_faults(record)
    starts = {node.index: node.start for node in nodes}
    versions = dense.evaluate(record, starts, toy, oracle_sgd(sgd))
    for node in nodes:
        np.testing.assert_allclose(node.weights(), versions[node.index][-1], rtol=1e-12, atol=1e-13)

    # bring the rounds under way to their end: then nothing that mixing did moves the mean
    begun = [
        node.learner.rounds + (node.learner.rounds in snapshots[i]) for i, node in enumerate(nodes)
    ]
    for _ in range(max(begun) * learners + 1):
        for i in range(learners):
            if nodes[i].learner.rounds < max(begun):
                start(i)
                mix(i)
    assert {node.learner.rounds for node in nodes} == {max(begun)}
    moved = sum(node.weights() - node.start for node in nodes)
    expected = sum(own_updates(node, versions[node.index], sgd) for node in nodes)
    np.testing.assert_allclose(moved, expected, rtol=1e-10, atol=1e-12)


def own_updates(node: Driven, versions: list[np.ndarray], sgd: Sgd) -> np.ndarray:
    """Sum of a learner's updates, its mixes left out."""
    velocity = np.zeros_like(node.start)
    total = np.zeros_like(velocity)
    for event in node.events:
        if isinstance(event, Update):
            phi = versions[event.read]
            gradient = toy(node.index, event.step, phi)
            direction, velocity = oracle_sgd(sgd).direction(gradient, phi, velocity)
            total -= event.rate * direction
    return total


@pytest.mark.parametrize("sgd", OPTIMISERS)
def test_late_learner_is_delay_by_one(sgd: Sgd) -> None:
    rates = [0.1, 0.2, 0.1, 0.05, 0.1]
    nodes = [Driven(i, sgd, late=True) for i in range(4)]
    for k, rate in enumerate(rates):
        for node in nodes:
            node.gradient()
        before = [node.weights() for node in nodes]
        average = torch.from_numpy(np.mean(before, axis=0))
        for node in nodes:
            others = tuple((j, 0.25, 2 * k) for j in range(4) if j != node.index)
            node.learner.replace(Mix(round=k, own=2 * k, takes=others), average)
        for node in nodes:
            node.update(rate)
    start = np.stack([node.start for node in nodes], axis=1)
    record = {node.index: node.events for node in nodes}
    assert not ledger_faults(record)
    versions = dense.evaluate(record, dict(enumerate(start.T)), toy, oracle_sgd(sgd))
    for node in nodes:
        np.testing.assert_allclose(node.weights(), versions[node.index][-1], rtol=1e-12)
    assert staleness(nodes[0].events) == [1, 2, 2, 2, 2]


@pytest.mark.parametrize("sgd", OPTIMISERS)
def test_late_learners_that_start_equal_follow_the_closed_form(sgd: Sgd) -> None:
    rates = [0.1, 0.2, 0.1, 0.05, 0.1]
    nodes = [Driven(0, sgd, late=True) for _ in range(4)]
    for i, node in enumerate(nodes):
        node.index = i
    for k, rate in enumerate(rates):
        for node in nodes:
            node.gradient()
        average = torch.from_numpy(np.mean([node.weights() for node in nodes], axis=0))
        for node in nodes:
            node.learner.replace(Mix(round=k, own=2 * k, takes=()), average)
            node.update(rate)
    start = np.stack([node.start for node in nodes], axis=1)
    closed = dense.d1d(start, toy, rates, "mean", oracle_sgd(sgd))
    for i, node in enumerate(nodes):
        np.testing.assert_allclose(node.weights(), closed[:, i], rtol=1e-12)


def test_gaps_of_the_alignment_stay_zero() -> None:
    node = Driven(0, Sgd(momentum=0.9, weight_decay=0.1))
    gaps = np.ones(len(node.start), bool)
    gaps[:6] = gaps[16:18] = False
    for _ in range(3):
        node.gradient()
        node.learner.mix(Mix(round=0, own=0, takes=()), torch.zeros_like(node.learner.weights))
        node.update(0.1)
    assert not node.weights()[gaps].any()


def test_a_snapshot_holds_what_is_pending() -> None:
    node = Driven(0, Sgd())
    model = node.learner.model.clone()
    delta = torch.arange(len(model), dtype=torch.float64)
    expected = (model + delta).numpy()
    node.learner.mix(Mix(round=0, own=0, takes=()), delta.clone())
    torch.testing.assert_close(node.learner.model, model)  # a gradient may be under way
    np.testing.assert_array_equal(node.weights(), expected)
    node.learner.settle()
    np.testing.assert_array_equal(node.learner.model.numpy(), expected)


def test_a_newcomer_forgets_the_mixes_of_its_former_self() -> None:
    """One object is both in a replay: a mix that was not folded in died with the process."""
    node = Driven(0, OPTIMISERS[1])
    node.gradient()
    node.update(0.1)
    node.learner.mix(Mix(round=0, own=0, takes=()), torch.ones_like(node.learner.weights))
    given = torch.full_like(node.learner.weights, 3.0)
    node.learner.join(Join(source=1, version=7), given)
    np.testing.assert_array_equal(node.weights(), given.numpy())
    node.learner.settle()
    np.testing.assert_array_equal(node.weights(), given.numpy())
    assert not node.learner.velocity.any()


def test_a_gradient_left_out_leaves_no_trace() -> None:
    node = Driven(0, OPTIMISERS[1])
    node.gradient()
    node.update(0.1)
    for skip, rate in ((True, 0.1), (False, 0.0)):
        before, velocity = node.weights(), node.learner.velocity.clone()
        node.learner.gradient.fill_(float("nan"))
        node.learner.update(rate=rate, norm=float("nan"), skip=skip)
        np.testing.assert_array_equal(node.weights(), before)
        assert torch.equal(node.learner.velocity, velocity)
        assert not node.learner.gradient.any()
    node.gradient()
    node.update(0.1)
    assert not ledger_faults({0: node.events})
    versions = dense.evaluate({0: node.events}, {0: node.start}, toy, oracle_sgd(OPTIMISERS[1]))
    np.testing.assert_allclose(node.weights(), versions[0][-1], rtol=1e-12)


def transports(count: int, elements: int) -> tuple[list[TcpTransport], dict[int, Address]]:
    """Transports of so many ranks that know each other, for float64 snapshots; their addresses."""
    addresses: dict[int, Address] = {}
    like = torch.zeros(elements, dtype=torch.float64)
    made = [
        TcpTransport(
            rank,
            like,
            publish=functools.partial(addresses.__setitem__, rank),
            lookup=addresses.get,
            timeout=60,
        )
        for rank in range(count)
    ]
    return made, addresses


def exchange_rounds(
    made: list[TcpTransport], schedule: str, rounds: int, annoy: Callable[[], None]
) -> None:
    """All ranks make so many rounds in threads, each checks what it gets; meanwhile `annoy()`."""
    plan = SCHEDULES[schedule](learners=len(made), seed=2)

    def work(rank: int) -> None:
        for k in range(rounds):
            current = plan.round(k)
            made[rank].outgoing().fill_(rank * 1000 + k)
            note = Note(version=k)
            came = made[rank].exchange(k, current.receives(rank), current.sends(rank), note)
            assert list(came) == list(current.receives(rank))
            for j, arrival in came.items():
                assert (arrival.weights == j * 1000 + k).all()
                assert arrival.note.version == k

    with ThreadPoolExecutor(len(made)) as pool:
        working = [pool.submit(work, rank) for rank in range(len(made))]
        annoy()
        for future in working:
            future.result(90)
    for transport in made:
        transport.close()


@pytest.mark.parametrize("by", ["memory", "messages"])
@pytest.mark.parametrize("schedule", list(SCHEDULES))
def test_snapshots_larger_than_every_buffer_arrive(
    schedule: str, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by == "messages":
        monkeypatch.setattr(tcp, "shelf_of", lambda *_, **__: None)
    monkeypatch.setattr(link, "BUFFER_BYTES", 2**18)
    exchange_rounds(transports(5, 400_000)[0], schedule, 3, lambda: None)


def test_strangers_at_the_door_do_not_end_a_run() -> None:
    made, addresses = transports(4, 1000)

    def annoy() -> None:
        for address in addresses.values():
            for words in (b"GET / HTTP/1.0\r\n\r\n" + bytes(300), b"", b"half a header"):
                with socket.create_connection(address) as stranger:
                    stranger.sendall(words)
                time.sleep(0.005)

    exchange_rounds(made, "ring", 200, annoy)


@given(st.data(), st.integers(2, 8))
@settings(max_examples=200)
def test_a_broken_off_round_keeps_the_survivors_mean(data: st.DataObject, learners: int) -> None:
    """Whoever died, wherever the round broke off: what counts is symmetric among the living."""
    name = data.draw(st.sampled_from(["ring", "random-ring", "pairwise", "complete"]))
    current = SCHEDULES[name](learners=learners, seed=3).round(5)
    where = [data.draw(st.sampled_from(["before", "in", "in", "past"])) for _ in range(learners)]
    for i in range(learners):  # who is past the round has settled it with all its partners
        if where[i] == "past" and any(where[j] == "before" for j in current.receives(i)):
            where[i] = "in"
    holds: list[tuple[int, ...]] = [
        tuple(
            j
            for j in current.receives(i)
            if where[j] == "past" or (where[j] == "in" and data.draw(st.booleans()))
        )
        for i in range(learners)
    ]
    alive = sorted(data.draw(st.sets(st.integers(0, learners - 1), min_size=1)))
    reports = {
        i: Report(round=6)
        if where[i] == "past"
        else Report(round=5, exchanging=where[i] == "in", holds=holds[i])
        for i in alive
        if where[i] != "before"
    } | {i: Report(round=5) for i in alive if where[i] == "before"}
    decision = Decision(1, tuple(alive), 6, {}, reports)
    weights = np.random.default_rng(1).normal(size=learners)
    mixed = weights.copy()
    for i in alive:
        takes = current.partners(i)
        if where[i] == "in":
            partners = decision.settled(i)
        else:  # the dead whom it mixed with have left their share to it, as it to them
            partners = [j for j in current.receives(i) if where[i] == "past" and j in alive]
        mixed[i] += sum(takes[j] * (weights[j] - weights[i]) for j in partners)
    assert mixed[alive].sum() == pytest.approx(weights[alive].sum(), abs=1e-12)
