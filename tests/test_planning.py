"""Advice for clusters, and the command; the model of time against the papers' hours."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_teams import MODEL, WORK, a_cluster, machines

from hadpsgd.cli import main
from hadpsgd.config.experiment import Training
from hadpsgd.errors import UserError
from hadpsgd.planning import explain, papers
from hadpsgd.planning.cluster import Cluster, Compute, Link
from hadpsgd.planning.evidence import EVIDENCE
from hadpsgd.planning.model import STRATEGIES, Team, Work, step
from hadpsgd.planning.recommend import advise, teams
from hadpsgd.training.rate import rate

ROOT = Path(__file__).resolve().parents[1]
DOC = ROOT / "docs" / "time-model.md"
HOURS = ROOT / "docs/benchmarks/papers-hours.md"
EXAMPLE = ["--nodes", "8", "--gpus", "8", "--bandwidth", "12.5e9", "--compute", "0.12"]


# the papers


def test_the_doc_shows_what_the_model_says() -> None:
    """Recomputed: change the model, and print docs/benchmarks/papers-hours.md's table anew."""
    assert papers.table() in HOURS.read_text(encoding="utf-8")


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
    assert advice.level and (advice.level.team.batch, advice.level.team.learners) == (8192, 64)
    assert f"With 8192 it would need {advice.level.hours:.2f} h" in text
    assert advice.best.hours < advice.level.hours_with_straggler
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
        (["--nodes", "0"], "--nodes is a whole number from 1 to 100000, not 0"),
        (["--nodes", "-3"], "--nodes is a whole number from 1 to 100000, not -3"),
        (["--nodes", "1" * 400], "--nodes is a whole number from 1"),
        (["--gpus", "-1"], "--gpus is a whole number from 1 to 1024, not -1"),
        (["--bandwidth", "nan"], "--bandwidth is a number from 1 to 1e+15, not nan"),
        (["--bandwidth", "inf"], "--bandwidth is a number from 1 to 1e+15, not inf"),
        (["--inside-bandwidth", "1e-300"], "--inside-bandwidth is a number from 1"),
        (["--bandwidth", "0"], "--bandwidth is a number from 1 to 1e+15, not 0"),
        (["--compute", "-1"], "--compute is a number from 1e-09 to 1e+06, not -1"),
        (["--latency", "nan"], "--latency is a number from 0 to 1e+06, not nan"),
        (["--contention", "1"], "--contention is a number from 0 to 0.999, not 1"),
        (["--efficiency", "1.5"], "--efficiency is a number from 1e-06 to 1, not 1.5"),
        (["--noise", "-0.1"], "--noise is a number from 0 to 1, not -0.1"),
        (["--slowest", "0.5"], "--slowest is a number from 1 to 1e+06, not 0.5"),
        (["--batch", "0"], "--batch is a whole number from 1 to 2147483647, not 0"),
        (["--hours-of-speech", "0"], "--hours-of-speech is a number above 0"),
        (["--epochs", "nan"], "--epochs is a number above 0 and up to 1e+06, not nan"),
        (["--num-pdfs", "9" * 9], "--num-pdfs is a whole number from 1 to 1000000"),
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
