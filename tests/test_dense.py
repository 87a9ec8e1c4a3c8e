"""The dense NumPy evaluation, against torch.optim, against itself, and its ledger."""

from __future__ import annotations

import re
from typing import Literal

import dense
import numpy as np
import pytest
import torch
from dense import Sgd
from hypothesis import given
from hypothesis import strategies as st

from hadpsgd.decentralized.core.events import Event, Join, Mix, Update, ledger_faults, staleness
from hadpsgd.decentralized.topology.schedules import SCHEDULES

SIZE = 6
VARIANTS: tuple[Literal["own", "mean"], ...] = ("own", "mean")
RATES = [0.1, 0.1, 0.05, 0.2, 0.1, 0.03, 0.1, 0.1]
OPTIMISERS = [
    Sgd(),
    Sgd(momentum=0.9),
    Sgd(momentum=0.9, nesterov=True),
    Sgd(momentum=0.5, weight_decay=0.01),
]


def gradient(learner: int, step: int, weights: np.ndarray) -> np.ndarray:
    """Gradient of a nonlinear loss, another one for each learner and step."""
    draw = np.random.default_rng([learner, step])
    return np.tanh(draw.normal(size=(SIZE, SIZE)) @ weights) + draw.normal(size=SIZE)


def start(learners: int, equal: bool = False) -> np.ndarray:
    """Initial weights [P, L]."""
    seeds = [0] * learners if equal else range(learners)
    return np.stack([np.random.default_rng(seed).normal(size=SIZE) for seed in seeds], axis=1)


def by_torch(learners: int, sgd: Sgd) -> np.ndarray:
    """Mean gradients applied by torch.optim.SGD in float64."""
    weights = torch.nn.Parameter(torch.from_numpy(start(1)[:, 0].copy()))
    optimiser = torch.optim.SGD(
        [weights],
        lr=1.0,
        momentum=sgd.momentum,
        nesterov=sgd.nesterov,
        weight_decay=sgd.weight_decay,
    )
    for k, rate in enumerate(RATES):
        optimiser.param_groups[0]["lr"] = rate
        at = weights.detach().numpy()
        weights.grad = torch.from_numpy(sum(gradient(i, k, at) for i in range(learners)) / learners)
        optimiser.step()
    return weights.detach().numpy()


@pytest.mark.parametrize("sgd", OPTIMISERS)
@pytest.mark.parametrize("learners", [1, 4, 5])
def test_ssgd_is_torch_sgd_on_the_mean_gradient(learners: int, sgd: Sgd) -> None:
    weights = dense.ssgd(start(learners, equal=True), gradient, RATES, sgd)
    np.testing.assert_allclose(weights, by_torch(learners, sgd)[:, None].repeat(learners, 1), 1e-12)
    if learners == 1:
        alone = dense.single(start(1)[:, 0], gradient, RATES, sgd)
        np.testing.assert_allclose(alone, weights[:, 0], 1e-15)


@pytest.mark.parametrize("sgd", OPTIMISERS)
def test_the_mean_moves_by_the_mean_gradient_alone(sgd: Sgd) -> None:
    # gradients that ignore the weights: however one mixes, the mean is that of one learner
    def constant(learner: int, step: int, weights: np.ndarray) -> np.ndarray:
        return gradient(learner, step, np.zeros_like(weights))

    plain = Sgd(momentum=sgd.momentum, nesterov=sgd.nesterov)
    expected = dense.ssgd(start(5), constant, RATES, plain).mean(axis=1)
    schedule = SCHEDULES["random-ring"](learners=5, seed=3)
    for weights in (
        dense.dpsgd(start(5), constant, RATES, lambda k: schedule.round(k).matrix(), plain),
        dense.d1d(start(5), constant, RATES, "own", plain),
        dense.local(start(5), constant, RATES, every=3, sgd=plain),
    ):
        np.testing.assert_allclose(weights.mean(axis=1), expected, 1e-12)


def test_dpsgd_on_the_complete_graph_averages_each_step() -> None:
    def tu(_: int) -> np.ndarray:
        return np.full((4, 4), 0.25)

    weights = dense.dpsgd(start(4), gradient, RATES[:1], tu)
    grads = [gradient(i, 0, start(4)[:, i]) for i in range(4)]
    expected = start(4).mean(axis=1, keepdims=True) - 0.1 * np.array(grads).T
    np.testing.assert_allclose(weights, expected, 1e-14)


def test_delay_by_one_takes_the_gradient_one_round_late() -> None:
    # g(w) = w, one learner: w[k+1] = w[k] - w[k-1] / 2, by hand from 1
    by_hand = [1, 0.5, 0, -0.25, -0.25, -0.125]
    for steps, expected in enumerate(by_hand):
        for phi in VARIANTS:
            end = dense.d1d(np.ones((1, 1)), lambda *args: args[2], [0.5] * steps, phi)
            assert end.item() == expected


def test_delay_by_one_variants_differ_only_where_learners_do() -> None:
    own = dense.d1d(start(4), gradient, RATES, "own")
    mean = dense.d1d(start(4), gradient, RATES, "mean")
    assert np.abs(own - mean).max() > 1e-3
    by_hand = {"own": start(4), "mean": start(4).mean(axis=1, keepdims=True).repeat(4, 1)}
    for phi in VARIANTS:
        at = by_hand[phi]
        grads = np.array([gradient(i, 0, at[:, i]) for i in range(4)]).T
        first = dense.d1d(start(4), gradient, RATES[:1], phi)
        expected = start(4).mean(axis=1, keepdims=True) - 0.1 * grads
        np.testing.assert_allclose(first, expected, 1e-14)


def test_local_is_ssgd_when_it_averages_every_step_without_momentum() -> None:
    every = dense.local(start(4, equal=True), gradient, RATES, every=1)
    np.testing.assert_allclose(every, dense.ssgd(start(4, equal=True), gradient, RATES), 1e-12)
    warm = dense.local(
        start(4, equal=True), gradient, RATES, every=99, synchronous=99, sgd=Sgd(momentum=0.9)
    )
    np.testing.assert_allclose(
        warm, dense.ssgd(start(4, equal=True), gradient, RATES, Sgd(momentum=0.9))
    )
    apart = dense.local(start(4), gradient, RATES, every=99)
    alone = dense.single(start(4)[:, 0], gradient, RATES, Sgd())
    np.testing.assert_allclose(apart[:, 0], alone, 1e-14)


def test_super_learner_takes_the_mean_gradient_of_its_learners() -> None:
    two_by_two = dense.grouped(gradient, 2)
    at = start(1)[:, 0]
    expected = (gradient(2, 7, at) + gradient(3, 7, at)) / 2
    np.testing.assert_allclose(two_by_two(1, 7, at), expected, 1e-15)


@pytest.mark.parametrize("sgd", OPTIMISERS)
@pytest.mark.parametrize("name", ["ring", "random-ring", "pairwise", "exponential"])
def test_record_of_a_synchronous_run_gives_its_closed_form(name: str, sgd: Sgd) -> None:
    schedule, learners = SCHEDULES[name](learners=5, seed=3), 5
    record: dict[int, list[Event]] = {i: [] for i in range(learners)}
    for k, rate in enumerate(RATES):  # round k mixes versions 2k, made 2k+1; then the gradient
        for i, events in record.items():
            takes = schedule.round(k).partners(i).items()
            events.append(
                Mix(round=k, own=2 * k, takes=tuple((j, w, 2 * k) for j, w in takes if j != i))
            )
            events.append(Update(step=k, read=2 * k, rate=rate))
    versions = dense.evaluate(record, dict(enumerate(start(5).T)), gradient, sgd)
    closed = dense.dpsgd(start(5), gradient, RATES, lambda k: schedule.round(k).matrix(), sgd)
    np.testing.assert_allclose(np.array([versions[i][-1] for i in range(5)]).T, closed, 1e-12)
    assert not ledger_faults(record)
    assert staleness(record[0]) == [1] * len(RATES)


@given(st.data(), st.integers(2, 6), st.sampled_from(OPTIMISERS))
def test_evaluation_by_versions_is_execution_in_order(
    data: st.DataObject, learners: int, sgd: Sgd
) -> None:
    """Any interleaving: here executed one by one on real arrays, there resolved from versions."""
    now = start(learners)
    versions = [[now[:, i].copy()] for i in range(learners)]
    velocity = np.zeros_like(now)
    record: dict[int, list[Event]] = {i: [] for i in range(learners)}
    steps = [0] * learners

    def push(i: int, event: Event, weights: np.ndarray) -> None:
        record[i].append(event)
        now[:, i] = weights
        versions[i].append(weights)

    for _ in range(data.draw(st.integers(1, 25))):
        i = data.draw(st.integers(0, learners - 1))
        read = data.draw(st.integers(0, len(versions[i]) - 1))
        if data.draw(st.booleans()):
            direction, velocity[:, i] = sgd.direction(
                gradient(i, steps[i], versions[i][read]), versions[i][read], velocity[:, i]
            )
            push(i, Update(step=steps[i], read=read, rate=0.1), now[:, i] - 0.1 * direction)
            steps[i] += 1
            continue
        j = data.draw(st.integers(0, learners - 1).filter(lambda j: j != i))  # noqa: B023
        other = data.draw(st.integers(0, len(versions[j]) - 1))
        before = now.mean(axis=1)
        mine, theirs = versions[i][read].copy(), versions[j][other].copy()
        push(i, Mix(round=0, own=read, takes=((j, 0.5, other),)), now[:, i] + 0.5 * (theirs - mine))
        push(j, Mix(round=0, own=other, takes=((i, 0.5, read),)), now[:, j] + 0.5 * (mine - theirs))
        np.testing.assert_allclose(now.mean(axis=1), before, atol=1e-13)
    dense_versions = dense.evaluate(record, dict(enumerate(start(learners).T)), gradient, sgd)
    for i in range(learners):
        np.testing.assert_allclose(dense_versions[i], versions[i], rtol=1e-12, atol=1e-12)
    assert not ledger_faults(record)


def test_a_replacement_starts_from_its_neighbour_without_momentum() -> None:
    record: dict[int, list[Event]] = {
        0: [Update(step=0, read=0, rate=0.1), Update(step=1, read=1, rate=0.1)],
        1: [
            Update(step=0, read=0, rate=0.1),
            Join(source=0, version=1),
            Update(step=1, read=2, rate=0.1),
        ],
    }
    weights = dict(enumerate(start(2).T))
    versions = dense.evaluate(record, weights, gradient, Sgd(momentum=0.9))
    np.testing.assert_array_equal(versions[1][2], versions[0][1])
    expected = versions[0][1] - 0.1 * gradient(1, 1, versions[0][1])
    np.testing.assert_allclose(versions[1][3], expected, 1e-14)


def test_a_version_that_never_comes_is_named() -> None:
    record: dict[int, list[Event]] = {
        0: [Mix(round=0, own=0, takes=((1, 0.5, 3),))],
        1: [Update(step=0, read=0, rate=0.1)],
    }
    with pytest.raises(ValueError, match=r"learner 0 cannot go on: Mix.*never comes"):
        dense.evaluate(record, dict(enumerate(start(2).T)), gradient)


@pytest.mark.parametrize(
    ("events", "fault"),
    [
        (
            [Update(step=0, read=0, rate=0.1), Update(step=2, read=1, rate=0.1)],
            r"gradients lost \[1\], applied twice \[\]",
        ),
        (
            [Update(step=0, read=0, rate=0.1), Update(step=0, read=1, rate=0.1)],
            r"gradients lost \[\], applied twice \[0\]",
        ),
        ([Update(step=1, read=0, rate=0.1), Update(step=0, read=1, rate=0.1)], "out of order"),
        ([Update(step=0, read=1, rate=0.1)], "version 0 is made of a later one"),
        ([Mix(round=0, own=5, takes=())], "version 0 is made of a later one"),
    ],
)
def test_ledger_names_the_fault(events: list[Event], fault: str) -> None:
    assert re.search(fault, ledger_faults({0: events})[0])
