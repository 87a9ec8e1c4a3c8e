"""The model of time against the papers' hours, the simulated clock and sums done by hand."""

from __future__ import annotations

import math
import random
import re
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from hadpsgd.cli import main
from hadpsgd.config.settings import Model
from hadpsgd.config.training import Training
from hadpsgd.errors import UserError
from hadpsgd.planning import explain, measure, papers
from hadpsgd.planning.cluster import Cluster, Compute, Link, expected_maximum
from hadpsgd.planning.evidence import EVIDENCE
from hadpsgd.planning.model import STRATEGIES, Strategy, Team, Work, hours, seconds_a_batch, step
from hadpsgd.planning.recommend import advise, teams
from hadpsgd.planning.traffic import allreduce, mixing
from hadpsgd.training.rate import rate

ROOT = Path(__file__).resolve().parents[1]
DOC = ROOT / "docs" / "time-model.md"
MODEL = papers.MODEL_BYTES
EXAMPLE = ["--nodes", "8", "--gpus", "8", "--bandwidth", "12.5e9", "--compute", "0.12"]
FAST = Link(bandwidth=1e15)


def a_cluster(**changes: Any) -> Cluster:
    """8 nodes of 8 V100s or so."""
    usual: dict[str, Any] = {
        "nodes": 8,
        "gpus": 8,
        "compute": Compute(each=5e-4, half_batch=70.0, noise=0.05),
        "inside": Link(bandwidth=5e10, latency=5e-6),
        "between": Link(bandwidth=6e9, latency=2e-5),
        "contention": 0.5,
    }
    return Cluster(**(usual | changes))


def a_team(strategy: Strategy, learners: int = 64, batch: int = 8192, size: int = 8) -> Team:
    if strategy == "single":
        return Team(strategy=strategy, batch=batch)
    size = size if strategy == "hadpsgd" else 1
    return Team(strategy=strategy, batch=batch, learners=learners, super_learner=size)


# the papers


def test_the_doc_shows_what_the_model_says() -> None:
    """Recomputed: change the model, and print docs/time-model.md's table anew."""
    assert papers.table() in DOC.read_text(encoding="utf-8")


def test_the_docs_examples_are_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```\n\$ hadpsgd (.*)\n([^`]*)```", DOC.read_text(encoding="utf-8"))
    assert len(blocks) == 2
    for arguments, shown in blocks:
        assert main(arguments.split()) == 0
        assert capsys.readouterr().out.startswith(shown)
    today = blocks[1][0].split()
    changes = {
        "nothing": [],
        "gradient 0.015 s": ["--compute", "0.015"],
        "gradient 0.06 s": ["--compute", "0.06"],
        "a quarter of the bandwidth reached": ["--efficiency", "0.25"],
        "90 % of it reached": ["--efficiency", "0.9"],
        "contention 0": ["--contention", "0"],
        "one learner 1.2 times slower": ["--slowest", "1.2"],
    }
    for name, change in changes.items():
        assert main([*today, *change]) == 0
        [needed] = re.findall(r"hadpsgd: .* ([\d.]+) hours", capsys.readouterr().out)
        assert f"| {name} | {needed} |" in DOC.read_text(encoding="utf-8")


def test_the_papers_hours() -> None:
    figures = papers.figures()
    assert len(figures) == 10
    assert all(abs(figure.error) < 0.2 for figure in figures)
    assert {figure.paper for figure in figures if not figure.fitted} == {3.6, 2.1, 5.2, 11.5}
    assert papers.largest_error() == max(abs(f.model / f.paper - 1) for f in figures)


def test_the_fit_is_the_best_one() -> None:
    """No neighbouring constants have a smaller sum of squares over the fitted figures."""
    fitted = papers.fit()

    def squares(compute: Compute, contention: float) -> float:
        errors = [
            math.log(papers.d1d_hours(compute, contention, learners=n) / papers.TABLE_3[n])
            for n in papers.FITTED_LEARNERS
        ]
        errors.append(math.log(papers.eleven_nodes(compute, contention) / papers.OVER_EIGHT))
        return sum(error**2 for error in errors)

    best = squares(fitted.compute, fitted.contention)
    for factor in (0.97, 1.03):
        each = replace(fitted.compute, each=fitted.compute.each * factor)
        half = replace(fitted.compute, half_batch=fitted.compute.half_batch * factor)
        assert squares(each, fitted.contention) > best
        assert squares(half, fitted.contention) > best
        assert squares(fitted.compute, fitted.contention * factor) > best


def test_hours_of_table_3_by_hand() -> None:
    """64 learners on 11 nodes of 6, without noise and contention: compute alone."""
    found = papers.d1d_hours(Compute(each=1e-3, half_batch=72.0), 0.0, learners=64)
    assert found == pytest.approx(16 * (2000 * 3600 * 100 / 21) / 8192 * 0.2 / 3600)


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
    # one super-learner is a node there, whose inner links take no time
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
        team = replace(a_team(strategy, learners=4, batch=4, size=2), overlap=False)
        place = replace(cluster, gpus=2, inside=FAST) if name == "hadpsgd" else cluster
        predicted = 1 / step(team, place, MODEL).seconds
        assert predicted == pytest.approx(simulated[name], rel=0.05), name


machines = st.builds(
    a_cluster,
    compute=st.builds(
        Compute,
        each=st.floats(1e-6, 10),
        half_batch=st.floats(0, 1000),
        noise=st.floats(0, 0.5),
    ),
    inside=st.builds(Link, bandwidth=st.floats(1e6, 1e12), latency=st.floats(0, 1e-2)),
    between=st.builds(Link, bandwidth=st.floats(1e6, 1e12), latency=st.floats(0, 1e-2)),
    contention=st.floats(0, 0.9),
    slowest=st.floats(1, 10),
)
chosen = st.builds(
    a_team,
    strategy=st.sampled_from(STRATEGIES),
    learners=st.sampled_from([8, 16, 24, 32, 64]),
    size=st.sampled_from([2, 4, 8]),
)
WORK = Work(model_bytes=MODEL, hours_of_speech=300)


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


# advice


def test_the_example() -> None:
    cluster = a_cluster(compute=papers.fit().compute.taking(seconds=0.12, batch=128))
    work = Work(model_bytes=MODEL, hours_of_speech=2000)
    advice = advise(cluster, work)
    team = advice.best.team
    assert (team.strategy, team.super_learner, team.batch) == ("hadpsgd", 8, 8192)
    assert [plan.team.strategy for plan in advice.plans] == list(STRATEGIES)
    text = " ".join(explain.reasons(advice, cluster))
    assert "Super-learners of 8 (all of a node)" in text
    assert "ssgd stops scaling at its batch" in text and "2560" in text
    assert "up to 3.2 (0.1 at 256" in explain.rate_rule(8192)


@settings(max_examples=40, deadline=None)
@given(
    cluster=machines,
    nodes=st.integers(1, 10**9),
    gpus=st.integers(1, 10**6),
    speech=st.floats(1e-3, 1e6),
    batch=st.none() | st.integers(1, 10**6),
)
def test_advice_for_any_cluster(
    cluster: Cluster, nodes: int, gpus: int, speech: float, batch: int | None
) -> None:
    """It fits the cluster, the papers carry it where they carry any, and few teams are tried."""
    cluster = replace(cluster, nodes=nodes, gpus=gpus)
    work = Work(model_bytes=MODEL, hours_of_speech=speech)
    advice = advise(cluster, work, batch=batch)
    assert advice.best in advice.plans
    known = [plan for plan in advice.plans if not plan.objections]
    assert not known or advice.best in known
    assert advice.best.hours <= 1.1 * min(plan.hours for plan in known or advice.plans)
    for plan in advice.plans:
        team = plan.team
        assert 1 <= team.learners <= nodes * gpus and team.own_batch >= 1
        assert batch is not None or team.batch <= EVIDENCE[team.strategy].batch
        assert plan.hours_with_straggler >= plan.hours * (1 - 1e-9)
    for strategy in STRATEGIES:
        assert len(list(teams(strategy, cluster, work, batch=batch, overlap=True))) < 60
    assert explain.rows(advice) and explain.choice(advice.best)
    explain.reasons(advice, cluster)


def test_more_gpus_than_a_batch_feeds_are_left_idle() -> None:
    few = advise(a_cluster(nodes=16), replace(WORK, hours_of_speech=2000))
    many = advise(a_cluster(nodes=10**6), replace(WORK, hours_of_speech=2000))
    assert many.best.team.learners <= 256 and many.best.hours <= few.best.hours * 1.1
    text = " ".join(explain.reasons(many, a_cluster(nodes=10**6)))
    assert "of 1000000 nodes are used" in text


def test_what_nobody_has_shown_is_left_out() -> None:
    """Two nodes on a link so slow that adpsgd hardly mixes: quick, but who knows what it learns."""
    cluster = a_cluster(nodes=2, gpus=1, contention=0.0, between=Link(bandwidth=1e6))
    advice = advise(cluster, replace(WORK, hours_of_speech=2000))
    adpsgd = advice.of("adpsgd")
    assert adpsgd is not None and adpsgd.step.rounds < 0.1
    assert adpsgd.hours < 0.9 * advice.best.hours
    assert advice.best.team.strategy == "single" and not advice.best.objections
    text = " ".join(explain.reasons(advice, cluster))
    assert "adpsgd with 2 learners is left out: the links carry only 0.01 rounds" in text


def test_little_speech_means_a_smaller_batch() -> None:
    work = Work(model_bytes=MODEL, hours_of_speech=100)
    best = advise(a_cluster(), work).best
    assert work.subsequences / best.team.batch >= 600


def test_the_config_is_one() -> None:
    for nodes, gpus in ((1, 1), (1, 8), (8, 8), (2, 3)):
        cluster = a_cluster(nodes=nodes, gpus=gpus)
        plan = advise(cluster, WORK).best
        training = Training.model_validate(
            yaml.safe_load("\n".join(explain.config(plan, WORK)))["training"]
        )
        [run] = training.members
        assert (run.strategy, run.learners) == (plan.team.strategy, plan.team.learners)
        assert (run.super_learner, training.batch) == (plan.team.super_learner, plan.team.batch)
        assert run.schedule == plan.team.schedule or run.strategy in ("single", "ssgd")
        top = rate(training.learning_rate, batch=training.batch, epoch=9.999)
        assert top == pytest.approx(0.1 * training.batch / 256, rel=1e-3)


# the command


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *EXAMPLE, "--hours-of-speech", "2000"]) == 0
    out = capsys.readouterr().out
    assert re.match(r"Take hadpsgd: 8 super-learners of 8, .* hours\.\n", out)
    for part in ("Why:", "Config:", "0.12 (given)", "(assumed: fitted to the papers)"):
        assert part in out
    assert main(["plan", "--papers"]) == 0
    assert capsys.readouterr().out.strip() == papers.table()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--nodes", "0"], "--nodes is a number above 0, not 0"),
        (["--nodes", "-3"], "--nodes is a number above 0, not -3"),
        (["--nodes", "1" * 400], "--nodes is above 1e+18"),
        (["--gpus", "-1"], "--gpus is a number above 0, not -1"),
        (["--bandwidth", "nan"], "--bandwidth is a number above 0, not nan"),
        (["--bandwidth", "inf"], "--bandwidth is above 1e+18"),
        (["--bandwidth", "0"], "--bandwidth is a number above 0, not 0"),
        (["--compute", "-1"], "--compute is a number above 0, not -1"),
        (["--latency", "nan"], "--latency is a number, 0 or more, not nan"),
        (["--contention", "1"], "contention is below 1, not 1"),
        (["--efficiency", "1.5"], "--efficiency is 1 at most, not 1.5"),
        (["--noise", "-0.1"], "--noise is a number, 0 or more, not -0.1"),
        (["--slowest", "0.5"], "factor is 1 or more, not 0.5"),
        (["--batch", "0"], "--batch is a number above 0, not 0"),
        (["--hours-of-speech", "0"], "--hours-of-speech is a number above 0"),
        (["--epochs", "nan"], "--epochs is a number above 0, not nan"),
        (["--num-pdfs", "9" * 9], "--num-pdfs is 1e+06 at most"),
        (["--config", "no-such.yaml"], "no-such.yaml"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *EXAMPLE, *arguments]) == 2
    printed = capsys.readouterr()
    assert said in printed.err and printed.err.count("\n") == 1 and not printed.out


def test_what_is_missing_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--nodes", "2", "--compute", "0.1"]) == 2
    assert "--bandwidth is missing" in capsys.readouterr().err
    assert main(["plan"]) == 2
    assert "--compute is missing" in capsys.readouterr().err


def test_teams_that_cannot_be() -> None:
    with pytest.raises(UserError, match="too small for 8 learners"):
        Team(strategy="ssgd", batch=4, learners=8)
    with pytest.raises(UserError, match="are no super-learners of 3"):
        Team(strategy="hadpsgd", batch=64, learners=8, super_learner=3)
    with pytest.raises(UserError, match="65 learners on 8 nodes of 8"):
        step(Team(strategy="adpsgd", batch=650, learners=65), a_cluster(), MODEL)
    with pytest.raises(UserError, match="8 GPUs of a node are no super-learners of 16"):
        team = Team(strategy="hadpsgd", batch=640, learners=64, super_learner=16)
        step(team, a_cluster(), MODEL)


# measuring


@dataclass(frozen=True, kw_only=True)
class Known(measure.Task):
    """A machine whose gradients take a known time of a clock of its own."""

    clock: list[float]

    def gradient(self, batch: int) -> Callable[[], None]:
        def gradient() -> None:
            self.clock[0] += 0.002 * (batch + 30)

        return gradient


@pytest.mark.parametrize(("wanted", "seconds", "largest"), [(64, 100.0, 64), (4096, 10.0, 128)])
def test_measured_is_what_the_machine_does(
    wanted: int, seconds: float, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The larger batch is halved until it fits the time."""
    clock = [0.0]
    monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    task = Known(shape=Model(), clock=clock)
    found = measure.measure_compute(task, batch=wanted, seconds=seconds)
    assert found.batches == (largest // 4, largest)
    assert found.compute.each == pytest.approx(0.002)
    assert found.compute.half_batch == pytest.approx(30)
    assert found.compute.noise == pytest.approx(0, abs=1e-9)
    assert clock[0] < 1.2 * seconds + 10


def test_a_line_that_makes_no_sense_is_none() -> None:
    for few in ([3.0], [0.1]):  # a larger batch is quicker; doubling it takes twenty times as long
        compute = measure.line(few=few, many=[2.0], batches=(4, 8))
        assert compute == Compute(each=0.25, half_batch=0.0, noise=0.0)
    assert measure.line(few=[2.0], many=[2.0], batches=(1, 1)).seconds(1) == 2.0


def test_noise_is_that_of_the_middle_half() -> None:
    draws = random.Random(3)
    times = [draws.gauss(1.0, 0.05) for _ in range(2000)] + [30.0] * 50
    found = measure.line(few=[0.5], many=times, batches=(1, 2))
    assert found.noise == pytest.approx(0.05, rel=0.15)


def test_lost_share_is_that_of_the_speed() -> None:
    assert measure.lost_share(alone=1.0, beside=4.0) == 0.75
    assert measure.lost_share(alone=1.0, beside=0.9) == 0
    assert measure.lost_share(alone=1.0, beside=1e9) == 0.95


def test_a_short_measurement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All of it, on a small model."""
    source = yaml.safe_load((ROOT / "config/tiny.yaml").read_text(encoding="utf-8"))
    source["model"] = {"layers": 1, "cells": 8, "projection": 8}
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(source))
    sizes = ["--num-pdfs", "50", "--input-dim", "10", "--compute-batch", "8"]
    timing = ["--measure", "--measure-seconds", "0.5"]
    arguments = ["plan", "--nodes", "2", "--gpus", "2", "--config", str(path), *sizes, *timing]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert out.startswith("Take ")
    for part in ("gradients on", "which is no network: give --bandwidth", "busy sockets"):
        assert part in out
    assert main([*arguments, "--compute", "0.5", "--contention", "0.1"]) == 0
    out = capsys.readouterr().out
    assert "0.5 (given)" in out and "contention: 0.1 (given)" in out and "gradients on" not in out
