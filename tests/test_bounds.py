"""The papers' figures for mixing, against schedules as built, and `hadpsgd topology`."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hadpsgd.cli import main
from hadpsgd.decentralized.topology import bounds
from hadpsgd.decentralized.topology.schedules import SCHEDULES, create


def second_eigenvalue(matrix: np.ndarray) -> float:
    """Second largest magnitude of a symmetric matrix's eigenvalues."""
    return float(np.sort(np.abs(np.linalg.eigvalsh(matrix)))[-2])


@given(st.integers(3, 128))
def test_ring_rho_is_the_second_eigenvalue(learners: int) -> None:
    matrix = SCHEDULES["ring"](learners=learners).round(0).matrix()
    assert bounds.ring_rho(learners) == pytest.approx(second_eigenvalue(matrix), abs=1e-12)
    assert bounds.measure(SCHEDULES["ring"](learners=learners)).rho == pytest.approx(
        1 / 3 + 2 / 3 * math.cos(2 * math.pi / learners), abs=1e-12
    )


@pytest.mark.parametrize(
    ("learners", "rho"), [(8, 0.805), (16, 0.949), (32, 0.987), (64, 0.997), (128, 0.9992)]
)
def test_ring_rho_of_the_paper(learners: int, rho: float) -> None:
    assert bounds.ring_rho(learners) == pytest.approx(rho, abs=10 ** -len(str(rho)[2:]) / 2)


@pytest.mark.parametrize("learners", [4, 5, 16])
def test_ring_meets_its_bound_with_equality(learners: int) -> None:
    curve = bounds.consensus_curve(create("ring", learners=learners), rounds=30)
    promised = [bounds.ring_bound(learners=learners, rounds=k) for k in range(31)]
    np.testing.assert_allclose(curve, promised, rtol=1e-9, atol=1e-14)


def random_ring_square(learners: int) -> np.ndarray:
    """E[T'T] of RAND (E, Eq. 10): 1/3 on the diagonal, 2/(3(L-1)) off it; [L, L], L >= 3."""
    square = np.full((learners, learners), 2 / (3 * (learners - 1)))
    np.fill_diagonal(square, 1 / 3)
    return square


@pytest.mark.parametrize("learners", [3, 4, 5, 8, 16])
def test_random_ring_expected_square_is_equation_10(learners: int) -> None:
    samples = 20000
    mean = bounds.mean_square(SCHEDULES["random-ring"](learners=learners, seed=7), samples)
    # an entry of T'T lies in [0, 1/3]: five standard errors of the widest such variable
    error = 5 * (1 / 6) / math.sqrt(samples)
    np.testing.assert_allclose(mean, random_ring_square(learners), atol=error)
    np.testing.assert_allclose(random_ring_square(learners).sum(0), 1, atol=1e-15)


@pytest.mark.parametrize("learners", [4, 5, 8, 16, 32])
def test_random_ring_stays_under_equation_12(learners: int) -> None:
    curve = bounds.consensus_curve(
        SCHEDULES["random-ring"](learners=learners, seed=3), rounds=12, samples=100
    )
    promised = np.array([bounds.random_ring_bound(learners=learners, rounds=k) for k in range(13)])
    assert (curve[1:] < promised[1:]).all()


def test_random_ring_mean_square_follows_from_equation_10() -> None:
    # E||T1..Tk - Tu||_F^2 = (L-1) lambda^k with lambda the second eigenvalue of E[T'T]
    learners, rounds, samples = 8, 4, 4000
    schedule = SCHEDULES["random-ring"](learners=learners, seed=11)
    total = 0.0
    for sample in range(samples):
        product = np.eye(learners)
        for k in range(rounds):
            product = product @ schedule.round(sample * rounds + k).matrix()
        total += float(((product - 1 / learners) ** 2).sum())
    eigenvalue = second_eigenvalue(random_ring_square(learners))
    assert total / samples == pytest.approx((learners - 1) * eigenvalue**rounds, rel=0.05)


@given(st.sampled_from(list(SCHEDULES)), st.integers(2, 24))
@settings(max_examples=60)
def test_rounds_to_target_are_the_first_under_it(name: str, learners: int) -> None:
    schedule = SCHEDULES[name](learners=learners, seed=1)
    mixing = bounds.measure(schedule, 1e-3)
    curve = bounds.consensus_curve(schedule, rounds=mixing.rounds)
    assert curve[-1] <= 1e-3 < curve[-2]
    assert mixing.gap == 1 - mixing.rho
    promised = bounds.paper_rounds(schedule, 1e-3)
    assert promised is None or promised >= mixing.rounds


@pytest.mark.parametrize("name", ["pairwise", "exponential", "one-peer-exponential"])
@pytest.mark.parametrize("learners", [5, 6, 13])
def test_rho_is_the_slope_of_consensus(name: str, learners: int) -> None:
    schedule = create(name, learners=learners)
    assert schedule.period is not None
    curve = bounds.consensus_curve(schedule, rounds=10 * schedule.period)
    slope = (curve[-1] / curve[5 * schedule.period]) ** (1 / (5 * schedule.period))
    assert slope == pytest.approx(bounds.measure(schedule).rho, rel=0.03)


def test_random_ring_rho_is_the_papers_for_many_learners() -> None:
    rho = bounds.measure(create("random-ring", learners=128, seed=1)).rho
    assert rho == pytest.approx(math.sqrt(1 / 3 - 2 / (3 * 127)), abs=1e-12)
    assert rho < 1 / math.sqrt(3)


@pytest.mark.parametrize(
    ("name", "models"),
    [("ring", 2), ("random-ring", 2), ("pairwise", 1), ("exponential", 3), ("complete", 1.75)],
)
def test_models_sent_a_round(name: str, models: float) -> None:
    assert bounds.models_sent(create(name, learners=8)) == models


def test_topology_prints_a_table(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plot = tmp_path / "consensus.png"
    arguments = ["topology", "--schedule", "ring", "random-ring", "--learners", "4", "16"]
    assert main([*arguments, "--plot", str(plot), "--show", "1"]) == 0
    output = capsys.readouterr().out
    row = next(line.split() for line in output.splitlines() if line.split()[:2] == ["ring", "16"])
    assert row[2:] == ["1", "yes", "yes", "yes", "0.94925", "0.05075", "133", "133", "329.2"]
    assert "0 takes 0.333 of 0  0.333 of 3  0.333 of 1" in output
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--schedule", "star"], "unknown mixing schedule 'star'"),
        (["--learners", "1"], "--learners is a whole number from 2 to 1024, not 1"),
        (["--target", "2"], "--target is a number from 1e-09 to 0.999, not 2"),
        (["--bytes", "0"], "--bytes is a whole number from 1 to 1024, not 0"),
    ],
)
def test_topology_refuses(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topology", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("name", "learners"), [("ring", 6), ("random-ring", 8), ("pairwise", 4)])
def test_learners_that_are_pushed_apart_stay_so_far(name: str, learners: int) -> None:
    """A random walk of 40,000 coordinates, mixed round by round: no eigenvalues, no sums."""
    schedule, draws = create(name, learners=learners, seed=3), np.random.default_rng(5)
    weights, seen = np.zeros((40_000, learners)), []
    for k in range(160):
        weights = (weights + draws.normal(size=weights.shape)) @ schedule.round(k).matrix()
        if k >= 60:
            seen.append(((weights - weights.mean(1, keepdims=True)) ** 2).mean())
    assert bounds.pushed_apart(schedule) == pytest.approx(math.sqrt(np.mean(seen)), rel=0.02)
    assert bounds.pushed_apart(create("complete", learners=learners)) == pytest.approx(0, abs=1e-7)
