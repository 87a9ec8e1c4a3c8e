"""What is seen of a run while it goes: distances from mixes, lags, the view in the terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from hadpsgd.cli import main
from hadpsgd.decentralized.core.events import Mix
from hadpsgd.decentralized.core.note import Note
from hadpsgd.decentralized.core.observation import Observer
from hadpsgd.decentralized.topology.schedules import create
from hadpsgd.training.watch_command import histogram


@pytest.mark.parametrize("schedule", ["ring", "pairwise", "complete"])
def test_distance_from_a_mix(schedule: str) -> None:
    """Learners scattered around their mean: any one of them tells how far."""
    draws = torch.Generator().manual_seed(1)
    mean = torch.randn(20_000, generator=draws)
    learners = [mean + 0.1 * torch.randn(20_000, generator=draws) for _ in range(8)]
    current = create(schedule, learners=8).round(0)
    for node in range(8):
        takes = {j: w for j, w in current.partners(node).items() if j != node}
        delta = sum(
            (w * (learners[j] - learners[node]) for j, w in takes.items()), torch.zeros_like(mean)
        )
        observer = Observer()
        mix = Mix(round=0, own=0, takes=tuple((j, w, 0) for j, w in takes.items()))
        observer.mixed(mix, delta, learners[node])
        assert observer.collect().distance == pytest.approx(0.1, rel=0.1)


def test_a_distance_is_taken_once_for_each_asking() -> None:
    observer = Observer()
    weights = torch.ones(4)
    observer.averaged(2 * weights, weights)
    observer.averaged(100 * weights, weights)
    assert observer.collect().distance == pytest.approx(0.5)
    assert observer.collect().distance is None


def test_lags_are_counted_edge_by_edge() -> None:
    observer = Observer()
    for own in (5, 6, 8):
        observer.exchanged(Note(steps=own), {1: Note(steps=5), 7: Note(steps=9)})
    lags = observer.collect().lags
    assert lags == {1: {0: 1, 1: 1, 3: 1}, 7: {-4: 1, -3: 1, -1: 1}}
    assert not observer.collect().lags


def test_watch_shows_every_learner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def write(name: str, *rows: dict[str, object]) -> None:
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    row: dict[str, object] = {
        "step": 10,
        "epoch": 0.5,
        "loss": 3.25,
        "learner_frames_per_second": 1000.0,
    }
    lags: dict[str, object] = {"lag_counts": {"1": {"0": 3, "2": 1}}}
    write("metrics.jsonl", row | lags, row | {"step": 20} | lags, {"step": 20, "epoch": 1.0})
    write("metrics.rank1.jsonl", row | {"loss": 3.5})
    write("system.1.jsonl", {"time": 1.0, "rank": 1, "memory_mib": 321.0})
    assert main(["watch", "--out", str(tmp_path), "--once"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert "2,000 frames/s, epoch 1.00" in shown[0]
    assert shown[1].split() == ["learner", "step", "frames/s", "loss", "RAM", "MiB"]
    assert shown[2].split() == ["0", "20", "1,000", "3.2500"]
    assert shown[3].split() == ["1", "10", "1,000", "3.5000", "321"]
    assert "0 <- 1   +0: 6  +2: 2" in shown


def test_many_values_are_counted_in_ranges() -> None:
    """Of learners of unequal speed, that is: a line of a hundred numbers tells nothing."""
    assert histogram({0: 6, -1: 2}) == "-1: 2  +0: 6"
    shown = histogram(dict.fromkeys(range(-110, 2), 2))
    assert shown.startswith("-110..-101: 20  -100..-91: 20  ")
    assert shown.endswith("  -10..-1: 20  +0..+1: 4")


def test_nothing_to_watch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "--out", str(tmp_path)]) == 2
    assert "no metrics.jsonl here" in capsys.readouterr().err
