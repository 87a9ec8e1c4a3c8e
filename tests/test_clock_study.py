"""`hadpsgd simulate`: its table, its plot, what it refuses; the toy problem it trains."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hadpsgd.cli import main
from hadpsgd.decentralized.simulated.study import HEADER
from hadpsgd.decentralized.simulated.toy import Toy

SHORT = [
    "simulate",
    "--learners",
    "4",
    "--super-learner",
    "2",
    "--seconds",
    "8",
    "--spread",
    "none",
]


def table(output: str) -> dict[str, dict[str, str]]:
    """Rows of the printed table by strategy."""
    lines = output.splitlines()
    rows = [line.split() for line in lines[1:] if len(line.split()) == len(HEADER)]
    return {cells[0]: dict(zip(HEADER, cells, strict=True)) for cells in rows}


def test_simulate_prints_a_row_for_each_strategy(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plot = tmp_path / "plot.png"
    assert main([*SHORT, "--slow", "0:4", "--plot", str(plot)]) == 0
    output = capsys.readouterr()
    rows = table(output.out)
    assert list(rows) == [
        "ssgd", "d1d", "local", "dpsgd", "adpsgd", "adpsgd:pairwise", "adpsgd:random-partner",
        "rand", "hadpsgd",
    ]  # fmt: skip
    assert rows["rand"]["schedule"] == "random-ring"
    assert float(rows["adpsgd"]["median"]) > 3 * float(rows["ssgd"]["median"])
    assert float(rows["adpsgd"]["held-out loss"]) < float(rows["ssgd"]["held-out loss"])
    assert "ssgd: 8 simulated seconds in" in output.err
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--runs", "sgd"], "no strategy 'sgd'"),
        (["--runs", "single"], "has 1 learner, not 4"),
        (["--runs", "ssgd:ring"], "averages over all learners, not over ring"),
        (["--runs", "adpsgd:star"], "unknown mixing schedule 'star'"),
        (["--runs", "d1d:ring"], "d1d averages all weights: its schedule is 'complete'"),
        (["--runs", "adpsgd:exponential"], "needs exchanges in both directions"),
        (["--super-learner", "2", "--runs", "hadpsgd:random-partner"], "do not draw partners"),
        (["--super-learner", "3", "--runs", "hadpsgd"], "no super-learners of 3"),
        (["--slow", "9:2"], "--slow: there are ranks 0 to 3, not 9"),
        (["--slow", "1"], "--slow takes RANK:NUMBER, not '1'"),
        (["--slow-link", "1:x"], "--slow-link takes RANK:NUMBER"),
        (["--slow", "0:inf"], "--slow takes numbers from 0 to 1e+09, not inf"),
        (["--die", "1:nan"], "--die takes numbers from 0 to 1e+09, not nan"),
        (["--die", "1:3"], "strategy ssgd cannot go on without a learner"),
        (["--die", "4:3"], "--die: there are ranks 0 to 3, not 4"),
        (["--runs", "rand", "--come-back", "1:3"], "who comes back has failed before"),
        (["--runs", "hadpsgd", "--die", "1:3", "2:3"], "somebody has to live"),
        (["--seconds", "0"], "--seconds is a number above 0"),
        (["--compute", "0"], "--compute is a number from 1e-06 to 1e+09, not 0"),
        (["--compute", "1e-300"], "--compute is a number from 1e-06"),
        (["--seconds", "inf"], "--seconds is a number above 0 and up to 1e+09, not inf"),
        (["--rate", "nan"], "--rate is a number above 0"),
        (["--momentum", "nan"], "--momentum is a number from 0 to 1, not nan"),
        (["--deviation", "1e300"], "--deviation is a number from 0 to 100, not 1e300"),
        (["--seed", "1" + "0" * 23], "--seed is a whole number from 0"),
        (["--pace", "0"], "--pace is a whole number from 1 to 1000, not 0"),
        (["--rate", "-1"], "--rate is a number above 0"),
        (["--inside-gigabits", "0"], "--inside-gigabits is a number above 0"),
    ],
)
def test_simulate_refuses(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SHORT, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_simulate_tells_how_long_others_took_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--learners", "8", "--runs", "adpsgd", "adpsgd:random-partner", "hadpsgd"]
    assert main([*SHORT, *arguments, "--die", "3:2", "--seconds", "12"]) == 0
    output = capsys.readouterr().out
    rows = table(output)
    assert float(rows["adpsgd"][HEADER[3]]) > 1.5  # of those that live
    for name, node in (("adpsgd", 3), ("hadpsgd", 1)):
        line = f"{name}: node {node} fails; all others go on without it "
        seconds = output.partition(line)[2].split()[0]
        assert 0 < float(seconds) < 5
    assert "random-partner: node 3 fails; each other learner parts with it by itself" in output


def test_toy_minibatches_depend_on_learner_and_step_alone() -> None:
    toy, again = Toy(seed=3), Toy(seed=3)
    for learner, step in ((0, 0), (1, 0), (0, 1), (63, 999)):
        assert torch.equal(
            toy.minibatch(learner=learner, step=step)[0],
            again.minibatch(learner=learner, step=step)[0],
        )
    first = toy.minibatch(learner=0, step=0)[0]
    for other in (
        toy.minibatch(learner=1, step=0),
        toy.minibatch(learner=0, step=1),
        Toy(seed=4).minibatch(learner=0, step=0),
    ):
        assert not torch.equal(first, other[0])


def test_toy_can_be_learnt() -> None:
    toy = Toy()
    before = toy.held_out_loss()
    for step in range(200):
        toy.module.zero_grad()
        toy.gradient(learner=0, step=step)
        with torch.no_grad():
            for p in toy.module.parameters():
                assert p.grad is not None
                p.sub_(0.3 * p.grad)
    assert toy.held_out_loss() < before - 0.5
