"""The contestants of the training benchmarks run: a few steps each, with two or four processes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
import torch._dynamo

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

import loss_race
import training_race
from loss_race import OURS, PEERS, Race, Result
from loss_task import STEPS_PER_EPOCH, HeldOut, LossTask
from training_contestants import CONTESTANTS, Task

torch.set_num_threads(1)
NEEDS = {"torchft": "torchft", "Decent-DP ring": "decent_dp"}
"""Peers' packages, of the extra `bench`."""


def skip_without_peer(name: str) -> None:
    if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed: pip install 'hadpsgd[bench]'")


@pytest.mark.parametrize("name", CONTESTANTS)
def test_a_contestant_of_the_race_for_steps(name: str) -> None:
    skip_without_peer(name)
    task = Task(layers=1, cells=4, projection=4, pdfs=5, dim=6, frames=3, batch=4)
    steps = training_race.WARM_UP + 3
    score = training_race.run(
        name, task, training_race.Race(4 if name == "hadpsgd" else 2, steps, held_out=True)
    )
    assert not isinstance(score, str), score
    assert 0 < score.loss < 3
    assert score.cpu_per_step > 0


@pytest.mark.parametrize("name", [*PEERS, *(name for name in OURS if name != "hadpsgd 8x2")])
def test_a_contestant_of_the_race_for_a_loss(name: str, tmp_path: Path) -> None:
    """All gradients are counted, once each, and all begin and end alike."""
    skip_without_peer(name)
    task = LossTask(folder=tmp_path, epochs=1)
    race = Race(
        task=task,
        name=name,
        seconds=0.001,
        injected={"slow_learners": {1: 2.0}},
        every=0.2,
        learners=4 if name.startswith("hadpsgd") else 2,
    )
    task.write([race.run])
    held_out = HeldOut(task)
    result = loss_race.run(race, held_out)
    assert isinstance(result, Result), result
    assert sum(result.steps) == result.wanted == STEPS_PER_EPOCH * race.world
    first = held_out.loss(loss_race.vector(task.model()))
    assert result.curve[0] == (0.0, pytest.approx(first))
    assert result.curve[-1][1] < first
    assert 0 < result.done < float("inf")
    if name in PEERS or OURS[name]["strategy"] not in ("adpsgd", "rand", "hadpsgd"):
        assert len(set(result.steps)) == 1, "a fixed share for each learner"


def test_the_moment_of_a_loss_lies_between_two_looks() -> None:
    result = Result(
        curve=[(0.0, 3.0), (1.0, 2.0), (2.0, 2.5), (3.0, 1.0)],
        work=[(0.0, 0), (1.0, 4), (2.0, 8)],
        steps=[4, 4],
        mixes=[0, 0],
        wanted=8,
        own_cores=1.0,
        load=0.0,
    )
    assert result.reaches(2.25) == pytest.approx(0.75)
    assert result.reaches(1.75) == pytest.approx(2.5)
    assert result.reaches(0.5) == float("inf")
    assert result.done == 2.0


def test_who_is_stopped_at_the_limit_is_shown_as_far_as_it_came(tmp_path: Path) -> None:
    task = LossTask(folder=tmp_path, epochs=1)
    race = Race(
        task=task,
        name="ssgd",
        seconds=0.01,
        injected={"slow_learners": {1: 1000.0}},
        limit=1.0,
        learners=2,
    )
    task.write([race.run])
    result = loss_race.run(race, HeldOut(task))
    assert isinstance(result, Result), result
    assert sum(result.steps) < result.wanted
    assert result.done == float("inf")
    assert result.span == result.work[-1][0]
