"""Mixing schedules: every one for 2 to 128 learners, healing, and what validation refuses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

from hadpsgd.decentralized.topology.mixing import MixingSchedule, Round, Takes
from hadpsgd.decentralized.topology.schedules import SCHEDULES, create
from hadpsgd.decentralized.topology.validation import deadlock_fault, validate
from hadpsgd.errors import UserError

NAMES = list(SCHEDULES)
LEARNERS = st.integers(2, 40)
ROUNDS = st.integers(0, 10**6)


def doubly_stochastic(matrix: np.ndarray) -> bool:
    """Rows and columns sum to 1, nothing negative."""
    sums = np.concatenate([matrix.sum(axis=0), matrix.sum(axis=1)])
    return bool((matrix >= 0).all() and np.allclose(sums, 1, rtol=0, atol=1e-12))


@pytest.mark.parametrize("name", NAMES)
def test_every_schedule_is_valid_from_2_to_128_learners(name: str) -> None:
    for learners in range(2, 129):
        create(name, learners=learners, seed=1)


@given(st.sampled_from(NAMES), LEARNERS, ROUNDS, st.integers(0, 2**40))
def test_mix_preserves_the_mean(name: str, learners: int, k: int, seed: int) -> None:
    matrix = SCHEDULES[name](learners=learners, seed=seed).round(k).matrix()
    weights = np.random.default_rng(k).normal(size=(5, learners))
    np.testing.assert_allclose((weights @ matrix).mean(1), weights.mean(1), atol=1e-14)


@pytest.mark.parametrize("learners", [2, 3, 4, 5, 8, 17])
def test_ring_is_the_circulant_of_thirds(learners: int) -> None:
    expected = np.zeros((learners, learners))
    for hop in {-1 % learners, 0, 1 % learners}:
        expected += np.roll(np.eye(learners), hop, axis=1) / min(3, learners)
    np.testing.assert_array_equal(SCHEDULES["ring"](learners=learners).round(7).matrix(), expected)


@given(LEARNERS.filter(lambda n: n > 2), ROUNDS, st.integers(0, 2**40))
def test_random_ring_is_the_ring_with_other_names(learners: int, k: int, seed: int) -> None:
    matrix = SCHEDULES["random-ring"](learners=learners, seed=seed).round(k).matrix()
    np.testing.assert_array_equal(matrix, matrix.T)
    assert set(matrix[matrix > 0]) == {1 / 3}
    assert ((matrix > 0).sum(axis=0) == 3).all()
    assert (np.diag(matrix) > 0).all()
    # everyone has two neighbours; that it is one ring and not several is left to see
    assert connected_components(matrix)[0] == 1


def test_random_ring_draws_each_permutation_equally_often() -> None:
    # 4 learners: 3 different rings; chi-squared with 2 degrees of freedom, 99.9 % below 13.8
    schedule = SCHEDULES["random-ring"](learners=4, seed=5)
    opposite = [
        next(j for j in range(1, 4) if j not in schedule.round(k).sends(0)) for k in range(3000)
    ]
    counts = np.bincount(opposite, minlength=4)[1:]
    assert ((counts - 1000) ** 2 / 1000).sum() < 13.8


def test_random_ring_is_the_same_in_every_process_and_in_any_order() -> None:
    schedule = SCHEDULES["random-ring"](learners=16, seed=12345)
    mine = [schedule.round(k).takes for k in (999, 3, 10**9)]
    code = (
        "from hadpsgd.decentralized.topology.schedules import create;"
        "s = create('random-ring', learners=16, seed=12345);"
        "print([s.round(k).takes for k in (999, 3, 10**9)])"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == repr(mine)
    assert SCHEDULES["random-ring"](learners=16, seed=12346).round(3).takes != mine[1]


@pytest.mark.parametrize("learners", [7, 16])
def test_random_rings_of_different_rounds_are_independent(learners: int) -> None:
    """An edge that is there in one round is there in a later one as often as any is."""
    schedule = SCHEDULES["random-ring"](learners=learners, seed=5)
    rounds = np.array([schedule.round(k).matrix() > 0 for k in range(400)])
    edges = rounds[:, *np.triu_indices(learners, 1)].astype(float)
    share, draws = 2 / (learners - 1), 400 * learners
    for lag in (1, 2, 3, 4):
        again = (edges[lag:] * edges[:-lag]).sum() / edges[lag:].sum()
        assert abs(again - share) < 5 * np.sqrt(share / draws)


@given(st.integers(2, 41))
def test_pairwise_uses_every_edge_of_the_ring_equally_often(learners: int) -> None:
    schedule = SCHEDULES["pairwise"](learners=learners)
    assert schedule.period is not None
    edges: list[tuple[int, int]] = []
    for k in range(schedule.period):
        pairs = [(i, *schedule.round(k).sends(i)) for i in range(learners)]
        assert all(len(pair) <= 2 for pair in pairs)
        assert sum(len(pair) == 1 for pair in pairs) == learners % 2
        edges += [(p[0], p[1]) for p in pairs if len(p) == 2 and p[0] < p[1]]
    counts = {edge: edges.count(edge) for edge in edges}
    ring = {(min(i, (i + 1) % learners), max(i, (i + 1) % learners)) for i in range(learners)}
    assert set(counts) == ring
    assert len(set(counts.values())) == 1


def test_exponential_graphs_average_exactly_at_powers_of_two() -> None:
    schedule = SCHEDULES["one-peer-exponential"](learners=16)
    product = np.linalg.multi_dot([schedule.round(k).matrix() for k in range(4)])
    np.testing.assert_allclose(product, 1 / 16, atol=1e-15)
    assert schedule.period == 4
    assert SCHEDULES["exponential"](learners=16).round(0).partners(3).keys() == {3, 2, 1, 15, 11}


@given(st.data(), st.sampled_from(NAMES), st.integers(3, 24), ROUNDS)
def test_round_without_the_dead_stays_doubly_stochastic(
    data: st.DataObject, name: str, learners: int, k: int
) -> None:
    dead = data.draw(st.sets(st.integers(0, learners - 1), max_size=learners))
    whole = SCHEDULES[name](learners=learners, seed=3).round(k)
    healed = whole.without(dead)
    assert doubly_stochastic(healed.matrix())
    assert healed.symmetric or not whole.symmetric
    for i in range(learners):
        if i in dead:
            assert healed.partners(i) == {i: 1.0}
            assert not healed.sends(i)
        else:
            assert not dead & set(healed.partners(i))


@given(st.data(), st.sampled_from([n for n in NAMES if SCHEDULES[n].symmetric]), ROUNDS)
def test_symmetric_round_heals_without_asking_anybody(
    data: st.DataObject, name: str, k: int
) -> None:
    dead = data.draw(st.sets(st.integers(0, 8), max_size=8))
    whole = SCHEDULES[name](learners=9, seed=3).round(k)
    healed = whole.without(dead)
    for i in set(range(9)) - dead:
        mine = whole.partners(i)
        expected = {j: w for j, w in mine.items() if j not in dead and j != i}
        assert {j: w for j, w in healed.partners(i).items() if j != i} == expected
        assert healed.partners(i)[i] == pytest.approx(1 - sum(expected.values()), abs=1e-15)


@given(st.data(), st.sampled_from(NAMES), st.integers(2, 20), ROUNDS)
def test_schedule_over_the_living_is_the_schedule_of_that_size(
    data: st.DataObject, name: str, learners: int, k: int
) -> None:
    alive = data.draw(st.sets(st.integers(0, learners - 1), min_size=1))
    whole = SCHEDULES[name](learners=learners, seed=3)
    healed = whole.over(alive)
    if len(alive) > 1:
        validate(healed)
    ranks = sorted(alive)
    matrix = healed.round(k).matrix()
    assert doubly_stochastic(matrix)
    small = SCHEDULES[name](learners=len(alive), seed=3).round(k).matrix()
    np.testing.assert_array_equal(matrix[np.ix_(ranks, ranks)], small)
    assert all(matrix[d, d] == 1 for d in set(range(learners)) - alive)
    # who comes back is back
    np.testing.assert_array_equal(
        healed.over(range(learners)).round(k).matrix(), whole.round(k).matrix()
    )


@given(st.sampled_from([n for n in NAMES if SCHEDULES[n].symmetric]), LEARNERS, ROUNDS)
def test_order_lists_each_partner_once(name: str, learners: int, k: int) -> None:
    current = SCHEDULES[name](learners=learners, seed=1).round(k)
    for i in range(learners):
        assert sorted(current.order(i)) == sorted(current.receives(i)) == sorted(current.sends(i))


class Listed(MixingSchedule):
    """A schedule written down in a test."""

    name = "listed"
    summary = "as listed"
    symmetric = False

    def __init__(
        self, *rounds: dict[int, Takes], symmetric: bool = False, learners: int = 4
    ) -> None:
        super().__init__(learners=learners)
        self.listed, self.symmetric = rounds, symmetric

    @property
    def period(self) -> int | None:
        """As many rounds as listed."""
        return len(self.listed)

    def exchanges(self, k: int) -> Iterator[tuple[int, Takes]]:
        """As listed."""
        yield from self.listed[k].items()


HALVES: dict[int, Takes] = {0: {0: 0.5, 1: 0.5}, 1: {1: 0.5, 0: 0.5}}
OTHER_HALVES: dict[int, Takes] = {2: {2: 0.5, 3: 0.5}, 3: {3: 0.5, 2: 0.5}}
SWAP: dict[int, Takes] = {0: {1: 1.0}, 1: {2: 1.0}, 2: {3: 1.0}, 3: {0: 1.0}}


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (Listed({0: {0: 0.5, 1: 0.4}}), "round 0: learner 0 takes 0.9 in all"),
        (
            Listed(HALVES | OTHER_HALVES, {0: {0: 0.5, 1: 0.5}}),
            "round 1: learner 0 gives 0.5",
        ),
        (Listed({0: {0: 1.5, 1: -0.5}, 1: {1: 1.5, 0: -0.5}}), "a weight is negative"),
        (Listed({0: {0: 0.5, 9: 0.5}}), "learner 9, which does not exist"),
        (Listed(HALVES | OTHER_HALVES), "not connected: learners 0 and 2"),
        (Listed(SWAP), "never reaches consensus"),
        (Listed(SWAP, symmetric=True), "not symmetric, though"),
        (
            Listed(HALVES | OTHER_HALVES, HALVES),
            "learner 2 exchanges 1 times .* learner 0 2",
        ),
        (
            Listed({0: {0: 0.2, 1: 0.4, 2: 0.4}, 1: {0: 0.8, 1: 0.2}, 2: {1: 0.4, 2: 0.6}}),
            "learner 0 sends 1 times and receives 2 times",
        ),
    ],
)
def test_validation_names_the_fault(schedule: MixingSchedule, message: str) -> None:
    with pytest.raises(UserError, match=message):
        validate(schedule)


def test_validation_finds_a_deadlock() -> None:
    class Circular(Round):
        """Each waits for the one on its right first: a cycle."""

        def order(self, learner: int) -> tuple[int, ...]:
            return ((learner + 1) % 4, (learner - 1) % 4)

    ring = SCHEDULES["ring"](learners=4).round(0)
    assert deadlock_fault([ring, ring]) is None
    assert deadlock_fault([Circular(ring.takes)]) == (
        "deadlock: learner 0 waits for 1 in round 0 for ever"
    )


@pytest.mark.parametrize(
    ("name", "learners", "seed", "message"),
    [
        ("rings", 4, 1, "unknown mixing schedule 'rings'. There are: ring, random-ring"),
        ("ring", 1, 1, "at least 2 learners"),
        ("ring", 0, 1, "at least 2 learners"),
        ("random-ring", 4, -1, "0 or more"),
    ],
)
def test_create_refuses(name: str, learners: int, seed: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        create(name, learners=learners, seed=seed)


def test_over_refuses_nobody_and_strangers() -> None:
    ring = create("ring", learners=4)
    with pytest.raises(UserError, match="no learner is alive"):
        ring.over([])
    with pytest.raises(UserError, match="0 to 3"):
        ring.over([0, 4])
    with pytest.raises(ValueError, match="counted from 0"):
        ring.round(-1)
    with pytest.raises(ValueError, match="no order"):
        create("exponential", learners=8).round(0).order(1)
