"""Trouble put into runs on purpose: slow learners, slow links, lost exchanges; what is refused."""

from __future__ import annotations

from typing import Any

import dense
import numpy as np
import pytest
from engine_task import Setup, dense_gradient, rate, run_setup
from hypothesis import given, settings
from hypothesis import strategies as st

from hadpsgd.config import check
from hadpsgd.config.training import Run
from hadpsgd.decentralized.network.injectors import Injection
from hadpsgd.decentralized.network.speeds import ComputeTimes, LinkTimes
from hadpsgd.decentralized.strategies.registry import Choice
from hadpsgd.decentralized.topology.schedules import SCHEDULES, create
from hadpsgd.errors import UserError
from hadpsgd.training.engines import injection_of

SYMMETRIC = sorted(name for name, kind in SCHEDULES.items() if kind.symmetric)
DIRECTED = sorted(SCHEDULES.keys() - set(SYMMETRIC))


@given(st.sampled_from(SYMMETRIC), st.integers(2, 16), st.floats(0.05, 0.9), st.data())
@settings(max_examples=60)
def test_lost_exchanges_keep_the_mean(
    name: str, learners: int, share: float, data: st.DataObject
) -> None:
    """Whatever is lost, and whoever is dead, the matrix stays symmetric and doubly stochastic."""
    schedule = Injection(drop=share, seed=3).on(create(name, learners=learners, seed=1))
    alive = sorted(data.draw(st.sets(st.integers(0, learners - 1), min_size=1)))
    for current in (schedule, schedule.over(alive)):
        for k in range(6):
            matrix = current.round(k).matrix()
            np.testing.assert_array_equal(matrix, matrix.T)
            np.testing.assert_allclose(matrix.sum(axis=0), 1.0)
            assert matrix.min() >= 0


def test_as_many_are_lost_as_asked() -> None:
    schedule = create("ring", learners=8, seed=1)
    losing = Injection(drop=0.3, seed=1).on(schedule)
    kept = sum(len(losing.round(k).receives(i)) for k in range(400) for i in range(8))
    assert kept / (400 * 16) == pytest.approx(0.7, abs=0.03)


def test_what_is_lost_and_slow_is_drawn_anew_every_time() -> None:
    """Neither exchanges nor gradients have the luck of the round or step before."""
    losing = Injection(drop=0.5, seed=1).on(create("ring", learners=12, seed=1))
    lost = [[len(losing.round(k).receives(i)) for i in range(12)] for k in range(500)]
    times = ComputeTimes(seconds=1.0, factors={}, spread="lognormal", deviation=0.5, seed=1)
    slow = [[times.at(learner=i, step=step) for i in range(12)] for step in range(500)]
    for table in (np.array(lost, float), np.array(slow)):
        for lag in (1, 2, 3):
            assert abs(np.corrcoef(table[lag:].ravel(), table[:-lag].ravel())[0, 1]) < 0.06
        assert abs(np.corrcoef(table[:, 0], table[:, 6])[0, 1]) < 0.2  # nor that of another


@pytest.mark.parametrize("name", DIRECTED)
def test_directed_rounds_cannot_lose_exchanges(name: str) -> None:
    with pytest.raises(UserError, match="would shift the mean"):
        Injection(drop=0.1).on(create(name, learners=8))


def test_a_run_with_lost_exchanges_is_exact() -> None:
    injection = Injection(drop=0.4, seed=9)
    setup = Setup(Choice(strategy="dpsgd"), learners=5, injection=injection)
    results = run_setup(setup)
    schedule = injection.on(create("ring", learners=5, seed=5))
    start = np.stack([result.start for result in results], axis=1)
    rates = [rate(step) for step in range(setup.steps)]
    wanted = dense.dpsgd(
        start,
        dense_gradient(),
        rates,
        lambda k: schedule.round(k).matrix(),
        dense.Sgd(momentum=0.9),
    )
    for result, column in zip(results, wanted.T, strict=True):
        assert np.linalg.norm(result.weights - column) < 1e-10 * np.linalg.norm(column)


@pytest.mark.parametrize(
    "links",
    [
        LinkTimes(latency=0.03),
        LinkTimes(bandwidth=1e5),
        LinkTimes(latency=1e-3, bandwidth=1e6, factors={2: 10.0}),
    ],
)
def test_slow_links_take_their_time(links: LinkTimes) -> None:
    """Ten rounds with two neighbours, of which the slowest link of the ring sets the pace."""
    setup = Setup(Choice(strategy="dpsgd"), steps=10, injection=Injection(links=links))
    results = run_setup(setup)
    size = results[0].start.nbytes
    slowest = max(links.seconds(learner=i, size=2 * size) for i in range(4)) + links.latency
    assert slowest > 0.01
    # the learner with the slow link waits for it, and the others for that learner
    assert max(result.seconds for result in results) > 10 * slowest


@pytest.mark.parametrize("spread", ["uniform", "exponential", "lognormal"])
def test_slow_learners(spread: Any) -> None:
    times = ComputeTimes(seconds=1.0, factors={1: 5.0}, spread=spread, deviation=0.3, seed=2)
    injection = Injection(compute=times)
    means = [
        np.mean([1 + injection.pause(learner=i, step=k, seconds=1.0) for k in range(4000)])
        for i in range(2)
    ]
    assert means[1] > 4.5 and means[1] == pytest.approx(5, rel=0.1)
    assert 1.0 <= means[0] < 1.5  # what would be faster than without is not
    fixed = Injection(compute=ComputeTimes(seconds=1.0, factors={1: 5.0}))
    assert (
        fixed.pause(learner=1, step=0, seconds=0.2) == pytest.approx(0.8)
        and fixed.pause(learner=0, step=0, seconds=0.2) == 0.0
    )


def test_the_config_says_what_is_put_in() -> None:
    run = Run(
        strategy="adpsgd",
        learners=4,
        injected={
            "slow_learners": {1: 5},
            "spread": "lognormal",
            "deviation": 0.2,
            "link_ms": 3,
            "link_mbit": 100,
            "slow_links": {2: 8},
            "drop": 0.1,
        },
    )
    injection = injection_of(run, 7)
    assert injection.compute == ComputeTimes(
        seconds=1.0, factors={1: 5.0}, spread="lognormal", deviation=0.2, seed=7
    )
    assert injection.links == LinkTimes(latency=0.003, bandwidth=12.5e6, factors={2: 8.0})
    assert (injection.drop, injection.seed) == (0.1, 7)


HADPSGD = {"strategy": "hadpsgd", "learners": 4, "super_learner": 2}


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ({"strategy": "d1d", "learners": 4, "schedule": "ring"}, "d1d averages all weights"),
        ({"strategy": "local", "learners": 4, "schedule": "ring"}, "local averages all weights"),
        (HADPSGD | {"among": "d1d", "schedule": "pairwise"}, "d1d averages all weights"),
        ({"strategy": "rand", "learners": 4, "schedule": "ring"}, "choose adpsgd"),
        *(
            ({"strategy": "adpsgd", "learners": 4, "schedule": name}, "is directed")
            for name in DIRECTED
        ),
        (HADPSGD | {"schedule": DIRECTED[0]}, "is directed"),
        (HADPSGD | {"learners": 2}, "that is strategy ssgd"),
        (HADPSGD | {"learners": 6, "super_learner": 4}, "cannot be divided into super-learners"),
        ({"strategy": "adpsgd", "learners": 4, "super_learner": 2}, "has no super-learners"),
        ({"strategy": "single", "learners": 2}, "strategy single has 1 learner, not 2"),
        ({"strategy": "ssgd"}, "needs at least 2 learners"),
        (
            {"strategy": "adpsgd", "learners": 4, "injected": {"slow_learners": {4: 2}}},
            "there is no learner 4",
        ),
        (
            {"strategy": "adpsgd", "learners": 4, "injected": {"slow_learners": {1: 0.5}}},
            "nothing can be made faster",
        ),
        (
            {
                "strategy": "dpsgd",
                "learners": 4,
                "schedule": DIRECTED[0],
                "injected": {"drop": 0.1},
            },
            "would shift the mean",
        ),
    ],
)
def test_runs_that_cannot_work_are_refused(run: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as refusal:
        check({"name": "x", "corpus": {"kind": "builtin"}, "training": {"runs": [run]}}, "c.yaml")
    assert message in str(refusal.value) and "\n" not in str(refusal.value)
