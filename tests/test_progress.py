"""What ranks tell of an epoch, interrupted or not: each held-out score once, of all who live."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist

from hadpsgd.decentralized.core.place import Place
from hadpsgd.decentralized.network.rendezvous import Meeting
from hadpsgd.models.loss import FrameScore
from hadpsgd.training.board import Board
from hadpsgd.training.metrics import Metrics
from hadpsgd.training.progress import Progress

Start = Callable[..., Progress]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Rank `rank` of three, at a step; `store` is of one attempt. 10 steps are an epoch."""

    def begin(store: dist.Store, rank: int, step: int, alive: tuple[int, ...] = (0, 1, 2)) -> Any:
        place = Place(rank=rank, world=3)
        meeting = Meeting(
            place=place, local_world=3, host="127.0.0.1", store=store, timeout=timedelta(seconds=5)
        )
        engine: Any = SimpleNamespace(place=place, steps=step, ranks=alive)
        metrics = Metrics(tmp_path, rank=rank, step=step)
        return Progress(
            Board(meeting),
            metrics,
            engine,
            epoch=step // 10,
            steps_per_epoch=10,
            epochs=3,
            every_seconds=1.0,
        )

    return begin


def scored(folder: Path) -> dict[float, float]:
    """Held-out loss by epoch, each told once."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    pairs = [(row["epoch"], row["heldout_loss"]) for row in rows if "heldout_loss" in row]
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def share(loss: float) -> FrameScore:
    """Of two frames."""
    return FrameScore(loss=loss, correct=1, frames=2)


@pytest.mark.parametrize("late", [0, 1, 2])
def test_shares_outlive_an_interruption(late: int, start: Start, tmp_path: Path) -> None:
    """One rank has not ended the epoch when all are interrupted; nobody's share is lost."""
    store = dist.HashStore()
    for rank in range(3):
        progress = start(store, rank, 5)
        if rank != late:
            progress.evaluated(share(2.0), 1)
        progress.close()
    assert scored(tmp_path) == {}
    store = dist.HashStore()  # the next attempt's
    ranks = [start(store, rank, 9 if rank == late else 10) for rank in range(3)]
    ranks[late].evaluated(share(8.0), 1)
    for rank in (2, 1, 0):
        ranks[rank].evaluated(share(1.0), 2)
    assert scored(tmp_path) == {1.0: 2.0, 2.0: 0.5}


def test_a_score_told_before_is_not_told_again(start: Start, tmp_path: Path) -> None:
    """Rank 0 told of epoch 1, then fell back to a checkpoint behind it, once before it."""
    for step, expected in ((14, {1.0: 1.0}), (9, {})):
        store = dist.HashStore()
        ranks = [start(store, rank, 5) for rank in range(3)]
        for rank in (2, 1, 0):
            ranks[rank].evaluated(share(2.0), 1)
        assert scored(tmp_path) == {1.0: 1.0}
        store = dist.HashStore()
        ranks = [start(store, rank, step) for rank in range(3)]
        ranks[0].finish(0.0)
        assert scored(tmp_path) == expected
        for progress in ranks:
            progress.close()


def test_the_dead_are_not_waited_for(start: Start, tmp_path: Path) -> None:
    """Nor a newcomer for an epoch before its time; what they had told counts."""
    store = dist.HashStore()
    first, second, third = (start(store, rank, 5) for rank in range(3))
    third.evaluated(share(8.0), 1)
    engines: list[Any] = [first.engine, second.engine]
    for engine in engines:
        engine.ranks = (0, 1)
    second.evaluated(share(2.0), 1)
    second.evaluated(share(2.0), 2)
    first.evaluated(share(2.0), 1)
    first.evaluated(share(2.0), 2)
    assert scored(tmp_path) == {1.0: 2.0, 2.0: 1.0}
    start(store, 2, 24)  # the newcomer
    for engine in engines:
        engine.ranks = (0, 1, 2)
    second.evaluated(share(2.0), 3)
    first.evaluated(share(2.0), 3)
    assert 3.0 not in scored(tmp_path)
    first.finish(0.0)
    assert scored(tmp_path) == {1.0: 2.0, 2.0: 1.0, 3.0: 1.0}
