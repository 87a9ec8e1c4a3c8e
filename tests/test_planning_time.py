"""The model's time of links and steps: the simulated clock, and sums done by hand."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_teams import FAST, MODEL, WORK, a_cluster, a_team, chosen, machines
from scipy import integrate, stats

from hadpsgd.cli import main
from hadpsgd.planning.cluster import Cluster, Compute, Link, expected_maximum
from hadpsgd.planning.model import STRATEGIES, Team, hours, seconds_a_batch, step
from hadpsgd.planning.traffic import allreduce, mixing

# time on the links


def test_allreduce_by_hand() -> None:
    cluster = a_cluster(nodes=2, gpus=4)
    inside = 2 * 3 / 4 * 1e9 / 5e10 + 6 * 5e-6
    assert allreduce(cluster, learners=4, size=1e9) == pytest.approx(inside)
    both = inside + 2 * 1 / 2 * 1e9 / 6e9 + 2 * 2e-5
    assert allreduce(cluster, learners=8, size=1e9) == pytest.approx(both)
    assert allreduce(cluster, learners=1, size=1e9) == 0


@pytest.mark.parametrize(("nodes", "on_node"), [(2, 1), (2, 4), (4, 2), (5, 1), (8, 3)])
def test_models_that_leave_a_node_are_counted(nodes: int, on_node: int) -> None:
    """On drawn rings, ordered and shuffled, learner by learner."""
    count = nodes * on_node
    cluster = a_cluster(nodes=nodes, gpus=on_node, inside=FAST, between=Link(bandwidth=1.0))
    draws = random.Random(7)
    rings = [draws.sample(range(count), count) for _ in range(4000)]
    for schedule, orders in (("ring", [list(range(count))]), ("random-ring", rings)):
        leaving = []
        for order in orders:
            pairs = {(order[i], order[(i + way) % count]) for i in range(count) for way in (1, -1)}
            leaving.append(sum(i // on_node == 0 != j // on_node for i, j in pairs))
        seconds = mixing(cluster, schedule, learners=count, super_learner=1, size=1.0)
        assert seconds == pytest.approx(statistics.mean(leaving), rel=0.03), schedule


def test_super_learners_send_as_one() -> None:
    cluster = a_cluster(between=Link(bandwidth=1e9))
    pair = mixing(cluster, "ring", learners=16, super_learner=8, size=1e9)
    ring = mixing(cluster, "ring", learners=64, super_learner=8, size=1e9)
    assert (pair, ring) == (pytest.approx(1.0), pytest.approx(2.0))
    assert mixing(cluster, "random-ring", learners=64, super_learner=8, size=1e9) == ring
    assert mixing(cluster, "pairwise", learners=64, super_learner=8, size=1e9) == pair
    assert mixing(cluster, "ring", learners=8, super_learner=8, size=1e9) == 0
    inside = mixing(cluster, "ring", learners=8, super_learner=4, size=1e9)  # two on one node
    assert inside == pytest.approx(1e9 / 4 / 5e10 + 5e-6)


# time of a step


@pytest.mark.parametrize("count", [1, 2, 3, 8, 64, 1000])
def test_the_last_of_many(count: int) -> None:
    """Against the integral of x times the density of the largest."""
    density: Callable[[float], float] = lambda x: (  # noqa: E731
        x * count * stats.norm.pdf(x) * stats.norm.cdf(x) ** (count - 1)
    )
    exact, _ = integrate.quad(density, -10, 10, limit=200)
    assert expected_maximum(count) == pytest.approx(exact, rel=1e-5, abs=1e-6)


SIMULATED = ("ssgd", "d1d", "dpsgd", "hadpsgd")


def test_steps_as_the_engine_takes_them_in_simulated_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The engine itself, 4 learners with noise, each on a node of its own, links of 10 Gbit/s."""
    arguments = ["--learners", "4", "--super-learner", "2", "--seconds", "30", "--batch", "4"]
    assert main(["simulate", "--runs", *SIMULATED, *arguments]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    simulated = {line[0]: float(line[4]) for line in lines if line[0] in SIMULATED}
    compute = Compute(each=0.5, noise=0.1)
    cluster = a_cluster(
        gpus=1, compute=compute, between=Link(bandwidth=1.25e9, latency=5e-5), contention=0.0
    )
    for name in SIMULATED:
        strategy = next(known for known in STRATEGIES if known == name)
        team = a_team(strategy, learners=4, batch=4, size=2)
        place = replace(cluster, gpus=2, inside=cluster.between) if name == "hadpsgd" else cluster
        predicted = 1 / step(team, place, MODEL).seconds
        assert predicted == pytest.approx(simulated[name], rel=0.05), name


@settings(max_examples=60, deadline=None)
@given(cluster=machines, team=chosen, factor=st.floats(1, 100))
def test_better_machines_never_need_longer(cluster: Cluster, team: Team, factor: float) -> None:
    needed = hours(team, cluster, WORK) * (1 + 1e-9)
    between, inside, compute = cluster.between, cluster.inside, cluster.compute
    for better in (
        replace(cluster, between=replace(between, bandwidth=between.bandwidth * factor)),
        replace(cluster, inside=replace(inside, bandwidth=inside.bandwidth * factor)),
        replace(cluster, between=replace(between, latency=between.latency / factor)),
        replace(cluster, contention=cluster.contention / factor),
        replace(cluster, slowest=max(1.0, cluster.slowest / factor)),
        replace(cluster, compute=replace(compute, each=compute.each / factor)),
        replace(cluster, compute=replace(compute, half_batch=compute.half_batch / factor)),
        replace(cluster, compute=replace(compute, noise=compute.noise / factor)),
    ):
        assert hours(team, better, WORK) <= needed


@settings(max_examples=60, deadline=None)
@given(cluster=machines, team=chosen)
def test_parts_of_a_step(cluster: Cluster, team: Team) -> None:
    seen = step(team, cluster, MODEL)
    assert seen.compute > 0 and seen.waiting >= 0 and seen.exchange >= 0
    assert seen.seconds >= cluster.compute.seconds(team.own_batch)
    assert 0 <= seen.rounds <= 1
    assert (seen.rounds == 0) == (team.strategy in ("single", "ssgd") or _one_group(team))
    bound = allreduce(cluster, learners=team.learners, size=MODEL)
    if team.strategy == "d1d":  # every gradient waits for a round
        assert seen.seconds >= bound * (1 - 1e-9)
    twice = replace(WORK, hours_of_speech=2 * WORK.hours_of_speech)
    assert hours(team, cluster, twice) == pytest.approx(2 * hours(team, cluster, WORK))


def _one_group(team: Team) -> bool:
    return team.strategy == "hadpsgd" and team.learners == team.super_learner


@settings(max_examples=100, deadline=None)
@given(cluster=machines, learners=st.sampled_from([8, 16, 64]))
def test_strategies_that_are_one_and_the_same(cluster: Cluster, learners: int) -> None:
    batch = 64 * learners
    alone = seconds_a_batch(Team(strategy="single", batch=64), cluster, MODEL)
    ssgd = Team(strategy="ssgd", batch=64, learners=1)
    assert seconds_a_batch(ssgd, cluster, MODEL) == pytest.approx(alone)
    adpsgd = a_team("adpsgd", learners, batch)
    ring = replace(a_team("hadpsgd", learners, batch), super_learner=1)
    assert seconds_a_batch(ring, cluster, MODEL) == seconds_a_batch(adpsgd, cluster, MODEL)
    rand = a_team("rand", learners, batch)
    mixed = replace(adpsgd, schedule="random-ring")
    assert seconds_a_batch(rand, cluster, MODEL) == seconds_a_batch(mixed, cluster, MODEL)
    whole = Team(strategy="hadpsgd", batch=512, learners=8, super_learner=8)
    group = step(Team(strategy="ssgd", batch=512, learners=8), cluster, MODEL)
    assert step(whole, cluster, MODEL) == group


def test_rounds_beside_gradients() -> None:
    """Where the link carries a round in twice a gradient's time, messages never cease."""
    gradient = 0.1
    compute = Compute(each=gradient / 128)
    cluster = a_cluster(compute=compute, between=Link(bandwidth=MODEL / gradient), contention=0.2)
    seen = step(a_team("hadpsgd"), replace(cluster, inside=FAST), MODEL)
    assert seen.seconds == pytest.approx(gradient / 0.8, rel=1e-4)
    assert seen.rounds == pytest.approx((gradient / 0.8) / (2 * gradient), rel=1e-4)
    quick = replace(cluster, between=Link(bandwidth=10 * MODEL / gradient), inside=FAST)
    seen = step(a_team("hadpsgd"), quick, MODEL)
    assert seen.seconds == pytest.approx(gradient + 0.2 * 2 * gradient / 10, rel=1e-4)
    assert seen.rounds == 1


def test_a_slow_learner_stops_those_who_wait_for_it() -> None:
    cluster = a_cluster(contention=0.0, compute=Compute(each=1e-3), inside=FAST, between=FAST)
    slowed = replace(cluster, slowest=3.0)
    for strategy, share in [("ssgd", 3.0), ("d1d", 3.0), ("dpsgd", 3.0)]:
        team = a_team(next(known for known in STRATEGIES if known == strategy))
        ratio = seconds_a_batch(team, slowed, MODEL) / seconds_a_batch(team, cluster, MODEL)
        assert ratio == pytest.approx(share, rel=1e-3)
    ring = a_team("adpsgd")
    ratio = seconds_a_batch(ring, slowed, MODEL) / seconds_a_batch(ring, cluster, MODEL)
    assert ratio == pytest.approx(64 / (63 + 1 / 3), rel=1e-3)
    whole = a_team("hadpsgd")
    ratio = seconds_a_batch(whole, slowed, MODEL) / seconds_a_batch(whole, cluster, MODEL)
    assert ratio == pytest.approx(8 / (7 + 1 / 3), rel=1e-3)


def test_gradients_are_sent_during_the_backward_pass() -> None:
    cluster = a_cluster(contention=0.0, compute=Compute(each=1e-3))
    team = a_team("ssgd")
    bytes_ = allreduce(cluster, learners=64, size=MODEL)
    assert bytes_ < 2 / 3 * 0.128  # it fits
    assert step(team, cluster, MODEL).exchange == pytest.approx(bytes_ / 8)
    assert step(replace(team, overlap=False), cluster, MODEL).exchange == pytest.approx(bytes_)
